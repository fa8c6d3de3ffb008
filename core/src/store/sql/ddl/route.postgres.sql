CREATE TABLE IF NOT EXISTS "keymill_route" (
  name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  version BIGINT NOT NULL, -- the version in the text, which only rises
  table_text TEXT NOT NULL -- TOML or JSON
);
COMMENT ON TABLE "keymill_route" IS 'keymill VERSION';
