CREATE TABLE IF NOT EXISTS "key_producer" (
  tablename VARCHAR(80) NOT NULL,
  columnname VARCHAR(80) NOT NULL,
  maxserialno VARCHAR(80) DEFAULT NULL,
  datefmt VARCHAR(20) NOT NULL,
  nofmt VARCHAR(20) NOT NULL,
  update_time TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (tablename, columnname, datefmt, nofmt)
) WITH (fillfactor = 50);
