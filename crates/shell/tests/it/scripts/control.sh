### if chains
for x in 1 5 9; do if [ $x -lt 3 ]; then echo low; elif [ $x -lt 7 ]; then echo mid; else echo high; fi; done
### while and until
i=0; while [ $i -lt 3 ]; do echo w$i; i=$((i+1)); done; until [ $i -eq 0 ]; do i=$((i-1)); done; echo $i
### break and continue levels
for i in 1 2 3; do for j in 1 2 3; do [ $j = 2 ] && continue 2; [ $i = 3 ] && break 2; echo $i$j; done; done
### case patterns
for w in apple banana cherry x42 ""; do case $w in a*) echo A;; b*|c*) echo BC;; x[0-9]*) echo num;; "") echo empty;; *) echo other;; esac; done
### case fallthrough
case a in a) echo 1;& b) echo 2;;& a) echo 3;; c) echo 4;; esac
### and or lists
true && echo yes || echo no; false && echo yes || echo no; ! true; echo $?
### groups
{ echo a; echo b; } | wc -l; (x=1; echo $x); echo "[$x]"
### subshell keeps out
x=1; (x=2; cd /; exit 5); echo $? $x; pwd | sed 's|.*/||'
### exit in subshell
(exit 42) || echo $?
### errexit
(set -e; false; echo never); echo $?; (set -e; if false; then :; fi; false || true; echo here)
### pipefail
(set -o pipefail; false | true); echo $?; false | true; echo $?
### select of test forms
[ -n "a" ] && [[ -z "" ]] && test 3 -gt 2 && [ a = a ] && [ a != b ] && echo all
### double bracket
x="hello world"; [[ $x == hello* ]] && echo glob; [[ $x =~ ^h(.*)o\ (w.*)$ ]] && echo "${BASH_REMATCH[1]},${BASH_REMATCH[2]}"; [[ a < b && ! b < a ]] && echo order
### regex groups
re='([0-9]+)-([0-9]+)'; [[ "tel 555-1234" =~ $re ]] && echo ${BASH_REMATCH[0]} ${BASH_REMATCH[1]} ${BASH_REMATCH[2]}
### file tests
touch f; mkdir d; ln -s f l; chmod +x f; for t in -e -f -d -L -x -s; do for n in f d l none; do test $t $n && printf '%s%s ' $t $n; done; done; echo
### newer tests
touch -d '2020-01-01' a; touch -d '2021-01-01' b; [ b -nt a ] && echo newer; [ a -ot b ] && echo older
### loop over lines
printf 'a b\nc d\n' | while read -r x y; do echo "$y$x"; done
### read with ifs
echo "k=v=w" | { IFS== read -r a b; echo "$a|$b"; }
### stdin of the script
read -r first; echo "got $first"; cat
### loop output to file
for i in 1 2 3; do echo $i; done > f; cat f
### nested case in loop
n=0; for a in -x --long=5 file; do case $a in --*=*) echo "${a%%=*} ${a#*=}";; -*) echo "flag ${a#-}";; *) echo "arg $a";; esac; done
### eval
cmd='echo $x'; x=5; eval "$cmd"; eval 'y=$((x+1))'; echo $y
### colon and true
: ignored $(echo side >&2) 2>/dev/null; echo $?
### background and wait
(sleep 0.05; echo bg > f) & wait; cat f
### wait for status
(exit 7) & wait $!; echo $?
### printf loop reuse
printf '%s=%s\n' a 1 b 2 c
### source a file
echo 'v=sourced; f() { echo "in $1"; }' > lib.sh; . ./lib.sh; echo $v; f x
### run a script file
printf '#!/bin/bash\necho "$0 $1 $#"; exit 9\n' > s.sh; chmod +x s.sh; ./s.sh a b; echo $?; bash s.sh q | sed 's/^/> /'
### script not executable
echo 'echo hi' > s.sh; ./s.sh 2>/dev/null; echo $?
### unknown command
nonexistent_cmd_xyz 2>/dev/null; echo $?
### time limit of a command
timeout 5 echo quick; echo $?
### exec replaces
(exec echo replaced; echo never)
### shopt nullglob
shopt -s nullglob; echo *.none; shopt -u nullglob; echo *.none
