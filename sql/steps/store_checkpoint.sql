-- Whatever a killed writer left in the log is written into the file.
CHECKPOINT;
