-- The queue with reasons. One row for each waiting job, the longest wait first.
SELECT * FROM queue_now ORDER BY waited_s DESC, job_id;
