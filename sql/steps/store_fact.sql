SELECT value FROM store_facts WHERE name = $name;
