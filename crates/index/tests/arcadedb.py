"""Serves one ArcadeDB database over Bolt on the loopback, until it is killed.

Arguments: a directory, the ports for Bolt and for HTTP, the password of `root`.
"""

import sys
import time

import arcadedb_embedded as arcadedb

DATABASE = "records"

root, bolt_port, http_port, password = sys.argv[1:]
server = arcadedb.ArcadeDBServer(
    root,
    password,
    config={
        "host": "127.0.0.1",
        "http_port": int(http_port),
        "server_plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
        "bolt_host": "127.0.0.1",
        "bolt_port": int(bolt_port),
        "bolt_defaultDatabase": DATABASE,
    },
    jvm_kwargs={"heap_size": "512m"},
)
server.start()
# Opens it where it is there already.
server.create_database(DATABASE)
print("ready", flush=True)
while True:
    time.sleep(60)
