-- The store: agents, sessions, branches, entries, blobs, checkpoints, operations, feed.
-- Every chk is the CRC-32 of the MessagePack array of the columns named beside it (SPEC.md, "Row checks").

CREATE TABLE agent (
  aid          INTEGER PRIMARY KEY,     -- local to this store; never leaves it
  scope        TEXT NOT NULL,
  id           TEXT NOT NULL,
  hidden       INTEGER NOT NULL,        -- 1 while in the trash, 2 once purged
  version      INTEGER NOT NULL,        -- from 1; grows with every change of its fields or its state
  created_ms   INTEGER NOT NULL,
  modified_ms  INTEGER NOT NULL,
  fields       BLOB NOT NULL,           -- name, type, system prompt, capabilities, config, metadata as JSON
  chk          INTEGER NOT NULL         -- all columns above
) STRICT;
CREATE UNIQUE INDEX agent_id ON agent (scope, id) WHERE hidden = 0;

CREATE TABLE agent_version (
  scope        TEXT NOT NULL,
  agent        INTEGER NOT NULL REFERENCES agent (aid),
  version      INTEGER NOT NULL,
  at_ms        INTEGER NOT NULL,
  state        BLOB,                    -- the whole state as JSON; NULL: as in the version before
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, agent, version)
) STRICT, WITHOUT ROWID;

CREATE TABLE session (
  sid          INTEGER PRIMARY KEY,     -- local to this store; never leaves it
  scope        TEXT NOT NULL,
  id           TEXT NOT NULL,
  key          TEXT NOT NULL,
  agent        TEXT NOT NULL,
  kind         TEXT NOT NULL,
  name         TEXT,
  label        TEXT,
  workspace    TEXT NOT NULL,           -- '' for none, so that the unique index sees it
  parent       INTEGER NOT NULL,        -- sid; 0 for none
  status       TEXT NOT NULL,
  archived     INTEGER NOT NULL,
  pinned       INTEGER NOT NULL,
  hidden       INTEGER NOT NULL,        -- 1 while in the trash, 2 once purged
  title        TEXT,
  tags         TEXT NOT NULL,           -- each between newlines
  created_ms   INTEGER NOT NULL,
  tasks        INTEGER NOT NULL,        -- at the head: tasks, completed ones, build attempts
  completed    INTEGER NOT NULL,
  builds       INTEGER NOT NULL,
  states       INTEGER NOT NULL,        -- changes of its state ever made, on any branch
  chk          INTEGER NOT NULL,        -- all columns above
  head_branch  INTEGER NOT NULL,
  head_uid     TEXT NOT NULL,
  head_fork    INTEGER NOT NULL,        -- fork_seq of head_branch
  head_seq     INTEGER NOT NULL,
  attached     INTEGER NOT NULL,        -- 1: at the tip of head_branch; 0: at a point, the next append opens a branch
  head_hash    BLOB NOT NULL,
  messages     INTEGER NOT NULL,        -- from here to work_seq: the numbers of the entry at the head
  turns        INTEGER NOT NULL,
  tool_calls   INTEGER NOT NULL,
  tool_failures INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  cost_nano    INTEGER NOT NULL,
  active_ms    INTEGER NOT NULL,
  work_seq     INTEGER NOT NULL,
  branches     INTEGER NOT NULL,        -- how many rows of branch belong to this session
  revision     INTEGER NOT NULL,
  updated      INTEGER NOT NULL,        -- feed position of the last change
  updated_ms   INTEGER NOT NULL,
  message_ms   INTEGER,                 -- when a message was last added
  rank         INTEGER NOT NULL,        -- feed position at which it last became the newest: the order of listings
  head_chk     INTEGER NOT NULL         -- sid and all columns from head_branch to rank
) STRICT;
CREATE UNIQUE INDEX session_id ON session (scope, id);
CREATE UNIQUE INDEX session_key ON session (scope, key) WHERE hidden = 0;
CREATE UNIQUE INDEX session_name ON session (scope, name, agent, workspace) WHERE name IS NOT NULL AND hidden = 0;
CREATE UNIQUE INDEX session_label ON session (scope, parent, label) WHERE label IS NOT NULL AND hidden = 0;
CREATE INDEX session_parent ON session (parent) WHERE parent > 0;
CREATE INDEX session_rank ON session (scope, hidden, rank);
CREATE INDEX session_created ON session (scope, hidden, sid);

CREATE TABLE detail (
  sid          INTEGER PRIMARY KEY REFERENCES session (sid),
  doc          BLOB NOT NULL,           -- prompt, model, provider, task, run id, metadata as JSON: what no append reads
  chk          INTEGER NOT NULL
) STRICT;

CREATE TABLE branch (
  bid          INTEGER PRIMARY KEY,     -- local to this store
  scope        TEXT NOT NULL,
  uid          TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  name         TEXT NOT NULL,
  parent       INTEGER REFERENCES branch (bid),
  fork_seq     INTEGER NOT NULL,        -- the last seq that is read from the parent; 0 without one
  depth        INTEGER NOT NULL,
  jump         INTEGER REFERENCES branch (bid),
  jump_seq     INTEGER NOT NULL,        -- the last seq of this path that jump or its ancestors own
  created_ms   INTEGER NOT NULL,
  tip_seq      INTEGER NOT NULL,        -- of a branch that no head is attached to; else a lower bound
  tip_hash     BLOB NOT NULL,
  hidden       INTEGER NOT NULL,        -- 1 once the fork that made it is undone
  chk          INTEGER NOT NULL         -- all columns above
) STRICT;
CREATE INDEX branch_parent ON branch (parent) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX branch_uid ON branch (scope, uid);
CREATE UNIQUE INDEX branch_name ON branch (scope, session, name);

CREATE TABLE entry (
  key          INTEGER PRIMARY KEY,     -- branch << 32 | seq: rows of a branch lie together, in order
  kind         TEXT NOT NULL,
  at_ms        INTEGER NOT NULL,
  turns        INTEGER NOT NULL,
  mid          TEXT,                    -- the caller's id, if one was given
  body         BLOB,                    -- NULL: spilled or redacted
  raw          BLOB,                    -- the provider's bytes, verbatim
  spill        TEXT,                    -- hashes of the blobs that hold body and raw, 'body,raw'
  chk          INTEGER NOT NULL,        -- all columns above
  scope        TEXT NOT NULL,
  messages     INTEGER NOT NULL,        -- running numbers of the path
  tool_calls   INTEGER NOT NULL,
  tool_failures INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  cache_read_tokens INTEGER NOT NULL,
  cache_write_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  cost_nano    INTEGER NOT NULL,
  active_ms    INTEGER NOT NULL,
  work_seq     INTEGER NOT NULL,        -- the last entry at or before this one that changed the state of work; 0: none
  salt         BLOB,
  body_hash    BLOB,                    -- kept only where body is redacted
  hash         BLOB NOT NULL,
  chain_chk    INTEGER NOT NULL         -- key, turns and all columns from scope to hash
) STRICT;
CREATE INDEX entry_mid ON entry (scope, mid) WHERE mid IS NOT NULL;

CREATE TABLE call (                     -- where tool calls are announced, started and answered; derived from entry
  scope        TEXT NOT NULL,
  key          INTEGER NOT NULL,        -- of the entry
  what         TEXT NOT NULL,           -- 'call', 'start', 'result', 'lost', 'ask' or 'answer'
  call_id      TEXT NOT NULL,
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, key, what, call_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE link (                     -- which entries need which blobs; derived from entry
  scope        TEXT NOT NULL,
  hash         TEXT NOT NULL,
  key          INTEGER NOT NULL,
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, hash, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE lost (                     -- entries whose content damage destroyed, as a repair recorded them
  key          INTEGER PRIMARY KEY,
  scope        TEXT NOT NULL,
  what         TEXT NOT NULL,
  at_ms        INTEGER NOT NULL,
  chk          INTEGER NOT NULL
) STRICT;

CREATE TABLE checkpoint (
  cid          INTEGER PRIMARY KEY,
  scope        TEXT NOT NULL,
  id           TEXT NOT NULL,
  session      INTEGER NOT NULL REFERENCES session (sid),
  name         TEXT NOT NULL,
  description  TEXT,
  type         TEXT NOT NULL,           -- 'manual', 'automatic', 'pre-operation' or 'recovery'
  at_ms        INTEGER NOT NULL,
  branch       INTEGER NOT NULL REFERENCES branch (bid),
  seq          INTEGER NOT NULL,
  hash         BLOB NOT NULL,           -- of the entry there
  chk          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX checkpoint_id ON checkpoint (scope, id);
CREATE INDEX checkpoint_name ON checkpoint (scope, session, name, cid);

CREATE TABLE idempotency (
  scope        TEXT NOT NULL,
  session      INTEGER NOT NULL,        -- 0: of the store
  ikey         TEXT NOT NULL,
  branch       INTEGER NOT NULL,        -- 0: the call stored no entry
  seq          INTEGER NOT NULL,        -- the first entry that the call stored, or the number of what it made
  last_seq     INTEGER NOT NULL,
  digest       INTEGER NOT NULL,        -- CRC-32 of the request where there is no entry to compare with, else 0
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, session, ikey, branch, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE operation (
  oid          INTEGER PRIMARY KEY,
  scope        TEXT NOT NULL,
  id           TEXT NOT NULL,
  kind         TEXT NOT NULL,
  session      INTEGER NOT NULL,        -- 0: an operation on an agent
  agent        INTEGER NOT NULL,        -- 0: an operation on a session
  at_ms        INTEGER NOT NULL,
  before       BLOB NOT NULL,           -- what it changed, as it was and as it became: JSON objects with the same keys
  after        BLOB NOT NULL,
  undoes       INTEGER,                 -- what an undo took back, what a redo brought back
  undone_by    INTEGER,
  chk          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX operation_id ON operation (scope, id);
CREATE INDEX operation_session ON operation (scope, session, agent, oid);

CREATE TABLE blob (
  blob_id      INTEGER PRIMARY KEY,
  scope        TEXT NOT NULL,
  hash         TEXT,                    -- SHA-256 of the content; NULL while it is being uploaded
  size         INTEGER NOT NULL,
  chunks       INTEGER NOT NULL,
  created_ms   INTEGER NOT NULL,
  chk          INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX blob_hash ON blob (scope, hash) WHERE hash IS NOT NULL;

CREATE TABLE chunk (
  scope        TEXT NOT NULL,
  blob_id      INTEGER NOT NULL REFERENCES blob (blob_id),
  n            INTEGER NOT NULL,
  codec        TEXT NOT NULL,           -- 'raw' or 'zstd'
  data         BLOB NOT NULL,
  chk          INTEGER NOT NULL,
  PRIMARY KEY (scope, blob_id, n)
) STRICT;

CREATE TABLE feed (
  pos          INTEGER PRIMARY KEY,     -- the order of commits; the last row is never deleted
  scope        TEXT NOT NULL,
  kind         TEXT NOT NULL,
  session      INTEGER NOT NULL,        -- 0: a change of an agent
  branch       INTEGER NOT NULL,        -- then the agent's number
  first_seq    INTEGER NOT NULL,
  last_seq     INTEGER NOT NULL,
  chk          INTEGER NOT NULL
) STRICT;

CREATE TABLE meta (
  name         TEXT PRIMARY KEY,
  value        BLOB NOT NULL,
  chk          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE migration (
  version      INTEGER PRIMARY KEY,
  name         TEXT NOT NULL,
  applied_ms   INTEGER NOT NULL,
  chk          INTEGER NOT NULL
) STRICT;
