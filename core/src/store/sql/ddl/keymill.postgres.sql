CREATE TABLE IF NOT EXISTS "keymill_segment" (
  name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  date BIGINT NOT NULL DEFAULT 0, -- of a serial, 0 else
  next BIGINT NOT NULL, -- lowest number not yet reserved; -9223372036854775808: all are
  state TEXT COLLATE "C" NOT NULL DEFAULT 'open', -- open, beginning, leased, closed
  stores BIGINT NOT NULL DEFAULT 1, -- how many stores share the numbers
  store BIGINT NOT NULL DEFAULT 1, -- which of them, from 1
  chunk BIGINT NOT NULL DEFAULT 0, -- numbers at a time, 0 with one store
  writer BIGINT NOT NULL DEFAULT 0, -- random number of the mill that reserved last
  updated_at TIMESTAMPTZ NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
COMMENT ON TABLE "keymill_segment" IS 'keymill VERSION';
