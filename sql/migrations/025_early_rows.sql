-- Rows from the future wait beside the late ones; they are taken when their time comes.
ALTER TABLE late_rows ADD COLUMN early BOOLEAN DEFAULT false;
