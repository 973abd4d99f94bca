"""PostgreSQL through psycopg 3: the same operations, run concurrently by any number of processes and machines."""
