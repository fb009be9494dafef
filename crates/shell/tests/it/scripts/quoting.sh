### single quotes keep everything
echo '$HOME `date` \n "x"'
### double quotes expand
x=5; echo "a $x ${x}b \$x \"q\" \\ \`"
### ansi quotes
printf '%s|' $'a\tb' $'\x41' $'\u00e9' $'it\'s' $'\101'; echo
### adjacent quotes join
echo a'b'"c"d
### empty words survive
f() { echo $#; }; f "" '' a; x=; f $x; f "$x"
### backslash newline joins lines
echo one\
two "three\
four"
### quoted glob stays
touch a b; echo * '*' "*" \*
### quote removal in assignment
a="x y"; b=$a; c='$a'; echo "$b|$c"
### nested quotes in substitution
echo "$(echo "a b" 'c d' "$(echo "deep  er")")"
### tilde
echo ~ "~" ~/x a~b
### at quoting
x="a'b"; echo "${x@Q}"; y=$'l1\nl2'; echo "${y@Q}"
### printf q
printf '%q ' 'a b' "it's" '' '$x'; echo
### comments
echo a # b
echo a#b; # c
### semicolons and newlines
echo 1; echo 2
echo 3
### unicode text
s="grün äöü ☃"; echo "$s" ${#s} "${s:1:3}" "${s^^}"
### dollar double quote
echo $"hello"
### echo flags
echo -n a; echo -e 'b\tc\n'; echo -E 'd\te'; echo -ne 'x\n'
