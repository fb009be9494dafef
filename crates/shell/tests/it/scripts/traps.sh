### exit trap
(trap 'echo bye' EXIT; echo work)
### exit trap keeps status
(trap 'echo cleanup' EXIT; exit 3); echo $?
### err trap
(trap 'echo failed' ERR; false; echo after)
### reset
(trap 'echo x' EXIT; trap - EXIT; echo done)
### trap list
trap 'echo hi' USR1; trap -p USR1
### self signal
trap 'echo caught' USR1; kill -USR1 $$; echo after
### temp file cleanup
(t=tmpfile; trap 'rm -f $t' EXIT; touch $t; ls); ls
### trap in function
f() { trap 'echo ret' RETURN; echo body; }; f; trap - RETURN
### errexit with trap
(set -e; trap 'echo exit $?' EXIT; false; echo never); echo $?
### debug trap
(trap 'echo dbg' DEBUG; true; true) | wc -l
