DELETE FROM {table} WHERE ts >= $range_from AND ts < $range_to;
