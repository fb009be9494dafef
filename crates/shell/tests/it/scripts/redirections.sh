### write and append
echo a > f; echo b >> f; cat f
### stderr
ls nonexistent 2> err; test -s err && echo has; ls nonexistent 2>/dev/null; echo $?
### both
{ echo out; echo err >&2; } > both 2>&1; wc -l < both
### ampersand form
{ echo out; echo err >&2; } &> both; cat both | sort
### order matters
{ echo out; echo err >&2; } 2>&1 > only; cat only
### swap
{ echo out; echo err >&2; } 3>&1 1>&2 2>&3 3>&- 2>/dev/null | cat
### read from file
printf '3\n1\n2\n' > n; sort < n
### custom descriptor
exec 3> log; echo one >&3; echo two >&3; exec 3>&-; cat log
### reading a descriptor
printf 'a\nb\n' > f; exec 4< f; read -r x <&4; read -r y <&4; exec 4<&-; echo $y$x
### noclobber
echo old > f; set -C; echo new > f 2>/dev/null; echo $?; echo forced >| f; cat f
### to dev null
echo gone > /dev/null; cat /dev/null; echo $?
### from missing file
cat < missing 2>/dev/null; echo $?
### into a missing directory
echo x > no/such/dir 2>/dev/null; echo $?
### onto a directory
mkdir d; echo x > d 2>/dev/null; echo $?
### tee
echo a | tee f g > /dev/null; echo b | tee -a f; cat f g
### read and write
printf 'abc' > f; exec 5<> f; read -r x <&5; echo $x; exec 5>&-
### truncate by redirect
echo long > f; > f; wc -c < f
### group into a file
{ echo 1; ls; echo 2; } > f; cat f
### while with two descriptors
printf '1\n2\n' > a; printf 'x\ny\n' > b; while read -r p <&3 && read -r q <&4; do echo $p$q; done 3<a 4<b
### here string with tr
tr a-z A-Z <<< shout
### output of a loop through a pipe
for i in 3 1 2; do echo $i; done | sort | head -n 2
### append from many commands
for i in 1 2 3; do echo "line $i" >> log; done; tail -n 1 log; wc -l < log
### sub and redirect
(echo sub; echo err >&2) > o 2> e; cat o e
### dev stdin and stdout
echo in | cat /dev/stdin; echo out > /dev/stdout; echo fd | cat /dev/fd/0
### overwrite keeps the mode
echo a > f; chmod 600 f; echo b > f; ls -l f | cut -c1-10
### symlinked target
echo a > t; ln -s t l; echo b >> l; cat t; test -L l && echo still
