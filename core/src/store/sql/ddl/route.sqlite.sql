CREATE TABLE IF NOT EXISTS "keymill_route" ( -- keymill VERSION
  name TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL, -- that of the text, only rises
  table_text TEXT NOT NULL -- TOML or JSON
) WITHOUT ROWID;
