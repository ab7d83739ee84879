-- The revisions of one window, newest first.
SELECT revision, state FROM cycles WHERE window_start = $window_start ORDER BY revision DESC;
