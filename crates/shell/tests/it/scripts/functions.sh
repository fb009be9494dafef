### arguments and status
f() { echo "$1-$2-$#"; return 3; }; f a b c; echo $?
### local variables
x=outer; f() { local x=inner; echo $x; }; f; echo $x
### dynamic scope
f() { local v=1; g; }; g() { echo $v; }; f
### recursion
fact() { (( $1 <= 1 )) && { echo 1; return; }; echo $(( $1 * $(fact $(($1-1))) )); }; fact 6
### function keyword
function hello { echo "hi $1"; }; hello you
### output capture
f() { echo out; echo err >&2; }; x=$(f 2>/dev/null); echo "[$x]"
### redirect a function
f() { echo a; echo b; }; f > out; wc -l < out
### shift loop
f() { while (($#)); do echo "$1"; shift; done; }; f x y z
### unset function
f() { echo x; }; unset -f f; f 2>/dev/null; echo $?
### function overrides command
ls() { echo mine; }; ls; command ls -d /; unset -f ls
### return from subshell
f() { (exit 4); }; f; echo $?
### set positional inside
f() { set -- x y; echo $#; }; set -- 1 2 3; f; echo $#
### declare f
f() { echo a; }; declare -F f; type -t f
### pipe into function
f() { while read -r a b; do echo "$b $a"; done; }; printf '1 2\n3 4\n' | f
### default arguments
f() { local n=${1:-10} m=${2-x}; echo $n $m; }; f; f 5 ""; 
### export function
f() { echo from $1; }; export -f f; bash -c 'f child'
### caller scope assignment
f() { y=set; }; f; echo $y
### early return in loop
f() { for i in 1 2 3; do [ $i = 2 ] && return 7; done; }; f; echo $?
### FUNCNAME
f() { echo ${FUNCNAME[0]}; }; f
### getopts
while getopts "ab:c" o -a -b val -c; do echo "$o:$OPTARG"; done
### getopts in function
p() { local OPTIND=1 v=0 n=; while getopts "vn:" o; do case $o in v) v=1;; n) n=$OPTARG;; *) return 2;; esac; done; shift $((OPTIND-1)); echo "$v $n $*"; }; p -v -n x a b; p -q 2>/dev/null; echo $?
