-- How cells are read: what counts as missing, numbers with their units, times.
-- CASE is used for speed: a branch is computed only for the rows that need it.
CREATE OR REPLACE TEMP MACRO gogh_absent(x) AS
    x IS NULL OR lower(trim(CAST(x AS VARCHAR))) IN (
        '', '-', 'n/a', '[n/a]', 'na', 'nan', 'null', 'none', 'not supported', '[not supported]',
        '[unknown error]', '[insufficient permissions]', '[gpu requires reset]'
    );
CREATE OR REPLACE TEMP MACRO gogh_text(x) AS
    CASE
        WHEN substr(CAST(x AS VARCHAR), 1, 1) BETWEEN 'a' AND 'm'
            OR substr(CAST(x AS VARCHAR), 1, 1) BETWEEN 'o' AND 'z' THEN rtrim(CAST(x AS VARCHAR))
        WHEN gogh_absent(x) THEN NULL
        ELSE trim(CAST(x AS VARCHAR))
    END;
-- '71.23 W', '34 %', '1024 MiB', ' 71.2 '; a unit that is not known is no number.
CREATE OR REPLACE TEMP MACRO gogh_unit(x) AS
    TRY_CAST(nullif(regexp_extract(
        CAST(x AS VARCHAR),
        '^\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?:W|%|MiB|MB|C|MHz|J)?\s*$', 1
    ), '') AS DOUBLE);
CREATE OR REPLACE TEMP MACRO gogh_real(n) AS CASE WHEN isnan(n) THEN NULL ELSE n END;
CREATE OR REPLACE TEMP MACRO gogh_number(x) AS
    gogh_real(CASE
        WHEN TRY_CAST(x AS DOUBLE) IS NOT NULL THEN TRY_CAST(x AS DOUBLE)
        WHEN x IS NOT NULL THEN gogh_unit(x)
    END);
-- From a number that was read already: a whole one, or nothing.
CREATE OR REPLACE TEMP MACRO gogh_whole(n) AS
    CASE WHEN n = trunc(n) AND abs(n) < 2147483648 THEN CAST(n AS INTEGER) END;
-- nvidia-smi writes bit masks as 0x0000000000000004.
CREATE OR REPLACE TEMP MACRO gogh_mask(x) AS
    CASE
        WHEN TRY_CAST(x AS DOUBLE) IS NOT NULL THEN TRY_CAST(TRY_CAST(x AS DOUBLE) AS BIGINT)
        WHEN lower(trim(CAST(x AS VARCHAR))) LIKE '0x%' THEN TRY_CAST(lower(trim(CAST(x AS VARCHAR))) AS BIGINT)
    END;
-- Epoch seconds between 1973 and 5138, or a written time in those years; one without a zone is UTC.
CREATE OR REPLACE TEMP MACRO gogh_within(t) AS
    CASE WHEN t BETWEEN TIMESTAMPTZ '1973-01-01 00:00:00+00' AND TIMESTAMPTZ '5138-01-01 00:00:00+00' THEN t END;
CREATE OR REPLACE TEMP MACRO gogh_time(x) AS
    CASE
        WHEN TRY_CAST(x AS DOUBLE) IS NULL THEN gogh_within(TRY_CAST(trim(CAST(x AS VARCHAR)) AS TIMESTAMPTZ))
        WHEN TRY_CAST(x AS DOUBLE) BETWEEN 1e8 AND 1e11 THEN to_timestamp(TRY_CAST(x AS DOUBLE))
    END;
-- What is said of a cell that could not be read.
CREATE OR REPLACE TEMP MACRO gogh_wrong(name, x, value) AS
    CASE WHEN value IS NULL THEN CASE WHEN NOT gogh_absent(x) THEN name || ' is ' || CAST(x AS VARCHAR) END END;
CREATE OR REPLACE TEMP MACRO gogh_wrong_time(x, value) AS
    CASE WHEN value IS NULL THEN
        CASE
            WHEN TRY_CAST(x AS DOUBLE) BETWEEN 1e11 AND 1e14
                THEN 'ts is ' || CAST(x AS VARCHAR) || ', which looks like milliseconds'
            WHEN NOT gogh_absent(x) THEN 'ts is ' || CAST(x AS VARCHAR)
        END
    END;
