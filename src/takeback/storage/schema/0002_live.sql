-- What is under way: who runs a session, answers that are being written, messages that wait to be received.

CREATE TABLE lease (
  scope        TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  token        INTEGER NOT NULL,        -- grows with every holder: a write with an older one is refused
  holder       BLOB,                    -- who has it, as JSON (SPEC.md, "What is under way"); NULL: nobody
  taken_ms     INTEGER NOT NULL,
  beats        INTEGER NOT NULL,        -- signs of life since then
  beat_ms      INTEGER NOT NULL,
  chk          INTEGER NOT NULL,        -- all columns above
  PRIMARY KEY (scope, session)
) STRICT, WITHOUT ROWID;

CREATE TABLE stream (                   -- an answer that is being written; it has no seq yet
  scope        TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  id           TEXT NOT NULL,
  branch       INTEGER NOT NULL REFERENCES branch (bid),  -- where it began, and where it will be appended
  seq          INTEGER NOT NULL,
  token        INTEGER NOT NULL,        -- of the lease of its writer; 0 without one
  holder       BLOB NOT NULL,
  about        BLOB NOT NULL,           -- role, model and id as JSON
  at_ms        INTEGER NOT NULL,
  pieces       INTEGER NOT NULL,        -- how many rows of delta belong to it
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, session, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE delta (                    -- what arrived of it
  scope        TEXT NOT NULL,
  stream       TEXT NOT NULL,
  n            INTEGER NOT NULL,        -- from 1, without gaps
  kind         TEXT NOT NULL,           -- 'text', 'thinking' or 'tool_input'
  data         BLOB NOT NULL,           -- UTF-8, lone surrogates included
  at_ms        INTEGER NOT NULL,
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, stream, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE inbox (                    -- messages that were sent to a session
  scope        TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  n            INTEGER NOT NULL,        -- from 1, without gaps: their order
  id           TEXT NOT NULL,
  sender       TEXT,                    -- the id of the session that sent it
  at_ms        INTEGER NOT NULL,
  body         BLOB,                    -- the message as JSON; NULL once it was received
  key          INTEGER NOT NULL,        -- of the entry that it became; 0 while it waits
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, session, n)
) STRICT, WITHOUT ROWID;
