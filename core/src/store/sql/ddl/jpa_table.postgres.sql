CREATE TABLE IF NOT EXISTS "hibernate_sequences" (
  sequence_name VARCHAR(255) NOT NULL PRIMARY KEY,
  next_val BIGINT
) WITH (fillfactor = 50);
