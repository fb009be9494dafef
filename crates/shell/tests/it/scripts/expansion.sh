### defaults
unset u; e=; echo "${u:-d1} ${e:-d2} ${e-d3} ${u-d4} [${e+set}] [${u+set}]"
### assign default
unset u; : ${u:=new}; echo $u
### error if unset
(unset u; echo ${u:?gone} ; echo not reached); echo $?
### length and substring
s=abcdefgh; echo ${#s} ${s:2} ${s:2:3} ${s: -3} ${s: -3:2} ${s:1:-2}
### prefix and suffix
p=/usr/local/lib/x.tar.gz; echo ${p#*/} ${p##*/} ${p%.*} ${p%%.*}
### replace
s="a-b-c-b"; echo ${s/b/X} ${s//b/X} ${s/#a/Y} ${s/%b/Z} ${s//-}
### replace with pattern
s=hello123world; echo ${s//[0-9]/_} ${s/[0-9]*/!}
### case change
s="hello World"; echo ${s^} ${s^^} ${s,} ${s,,} ${s^^[lo]}
### indirect
a=b; b=c; echo ${!a}
### names with prefix
pre_a=1 pre_b=2; echo ${!pre_*} "${!pre_@}"
### command substitution trims newlines
x=$(printf 'a\nb\n\n\n'); echo "[$x]"
### backquotes
echo `echo a \`echo b\``
### word splitting
x="a  b	c"; for w in $x; do echo "[$w]"; done
### custom ifs
IFS=:; x="a:b::c"; set -- $x; echo $#; for w; do echo "[$w]"; done
### joining with star
set -- a b c; IFS=-; echo "$*" "$@"
### positional parameters
set -- one two three four five six seven eight nine ten eleven; echo $1 ${10} ${11} $# ; shift 3; echo $1 $#
### slices of positionals
set -- a b c d e; echo "${@:2:2}" "${@: -1}" "${*:1:1}"
### brace lists
echo {a,b,c} x{1,2}y {a,b}{1,2} {1..5} {5..1} {01..03} {a..e} {1..10..3}
### brace nesting
echo {a,{b,c}d}e a{,b} {x} {}
### arithmetic expansion
echo $((1+2*3)) $(( (1+2)*3 )) $((7/2)) $((7%3)) $((2**10)) $((-7/2))
### special parameters
true; echo $?; false; echo $?; set -- a b; echo $# "$-" | sed 's/ .*//'
### pipestatus
true | false | (exit 3); echo "${PIPESTATUS[@]}"
### read only
readonly r=1; (r=2) 2>/dev/null; echo $? $r
### transformations
x="a b"; echo "${x@U}" "${x@u}" "${x@L}"; y='a\tb'; echo "${y@E}"
### substring of arrays
a=(zero one two three); echo ${a[@]:1:2} ${#a[@]} ${#a[1]}
### nameref
f() { local -n ref=$1; ref=changed; }; v=old; f v; echo $v
### default with expansion inside
unset a; b=x; echo "${a:-$b${b}y}" "${a:-"q r"}"
### nested parameter patterns
f=archive.tar.gz; e=.gz; echo ${f%"$e"} ${f%$e}
### process substitution
diff <(printf 'a\nb\n') <(printf 'a\nc\n'); echo $?
### read from process substitution
while read -r l; do echo "got $l"; done < <(printf '1\n2\n')
### seconds and line numbers
echo $LINENO
echo $LINENO
### dollar underscore star
set --; echo "[$*]" "[$@]" $#
### unset variable with set u
(set -u; echo $nope; echo unreached) 2>/dev/null; echo $?
