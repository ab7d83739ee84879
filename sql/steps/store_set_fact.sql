INSERT OR REPLACE INTO store_facts VALUES ($name, $value);
