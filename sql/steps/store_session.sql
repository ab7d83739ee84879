-- What every connection is set to.
SET TimeZone = 'UTC';
SET enable_progress_bar = false;
