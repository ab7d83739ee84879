-- How cells are read: what counts as missing, numbers with their units, times.
CREATE OR REPLACE TEMP MACRO gogh_absent(x) AS
    x IS NULL OR lower(trim(CAST(x AS VARCHAR))) IN (
        '', '-', 'n/a', '[n/a]', 'na', 'nan', 'null', 'none', 'not supported', '[not supported]',
        '[unknown error]', '[insufficient permissions]', '[gpu requires reset]'
    );
CREATE OR REPLACE TEMP MACRO gogh_text(x) AS CASE WHEN gogh_absent(x) THEN NULL ELSE trim(CAST(x AS VARCHAR)) END;
-- '71.23 W', '34 %', '1024 MiB', ' 71.2 '; a unit that is not known is no number.
CREATE OR REPLACE TEMP MACRO gogh_unit(x) AS
    TRY_CAST(nullif(regexp_extract(
        CAST(x AS VARCHAR),
        '^\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?:W|%|MiB|MB|C|MHz|J)?\s*$', 1
    ), '') AS DOUBLE);
CREATE OR REPLACE TEMP MACRO gogh_real(n) AS CASE WHEN isnan(n) THEN NULL ELSE n END;
CREATE OR REPLACE TEMP MACRO gogh_number(x) AS gogh_real(coalesce(TRY_CAST(x AS DOUBLE), gogh_unit(x)));
CREATE OR REPLACE TEMP MACRO gogh_whole(x) AS
    CASE WHEN gogh_number(x) = trunc(gogh_number(x)) AND abs(gogh_number(x)) < 2147483648
        THEN CAST(gogh_number(x) AS INTEGER) END;
-- nvidia-smi writes bit masks as 0x0000000000000004.
CREATE OR REPLACE TEMP MACRO gogh_mask(x) AS
    CASE
        WHEN lower(trim(CAST(x AS VARCHAR))) LIKE '0x%' THEN TRY_CAST(lower(trim(CAST(x AS VARCHAR))) AS BIGINT)
        ELSE TRY_CAST(gogh_number(x) AS BIGINT)
    END;
-- Epoch seconds between 1973 and 5138, or a written time; one without a zone is UTC.
CREATE OR REPLACE TEMP MACRO gogh_time(x) AS
    CASE
        WHEN TRY_CAST(x AS DOUBLE) IS NULL THEN TRY_CAST(trim(CAST(x AS VARCHAR)) AS TIMESTAMPTZ)
        WHEN TRY_CAST(x AS DOUBLE) BETWEEN 1e8 AND 1e11 THEN to_timestamp(TRY_CAST(x AS DOUBLE))
    END;
-- What is said of a cell that could not be read.
CREATE OR REPLACE TEMP MACRO gogh_wrong(name, x, value) AS
    CASE WHEN value IS NULL AND NOT gogh_absent(x) THEN name || ' is ' || CAST(x AS VARCHAR) END;
CREATE OR REPLACE TEMP MACRO gogh_wrong_time(x, value) AS
    CASE
        WHEN value IS NULL AND TRY_CAST(x AS DOUBLE) BETWEEN 1e11 AND 1e14
            THEN 'ts is ' || CAST(x AS VARCHAR) || ', which looks like milliseconds'
        WHEN value IS NULL AND NOT gogh_absent(x) THEN 'ts is ' || CAST(x AS VARCHAR)
    END;
