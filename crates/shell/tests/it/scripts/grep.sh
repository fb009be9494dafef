### simple
printf 'foo\nbar\nfoobar\n' | grep foo; printf 'a\n' | grep b; echo $?
### flags
printf 'Foo\nfoo\n' | grep -i FOO; printf 'a\nb\n' | grep -v a; printf 'a\nb\na\n' | grep -c a; printf 'a\nb\n' | grep -n b
### only matching
echo "a1b22c333" | grep -o '[0-9]*'; echo "k=v" | grep -oE '[a-z]+$'
### extended
printf 'ab\nac\nad\n' | grep -E 'a(b|c)'; printf 'aa\naaa\n' | grep -E '^a{3}$'
### fixed
printf 'a.b\naxb\n' | grep -F a.b
### word and line
printf 'cat\nconcat\n' | grep -w cat; printf 'cat\ncats\n' | grep -x cat
### recursive
mkdir -p d/e; echo needle > d/a; echo hay > d/b; echo needle > d/e/c; grep -r needle d | sort; grep -rl needle . | sort; grep -rc needle d | sort
### include and exclude
mkdir d; echo x > d/a.c; echo x > d/a.h; grep -r --include='*.c' x d; grep -r --exclude='*.c' x d
### context
seq 9 | grep -A1 3; seq 9 | grep -B1 3; seq 9 | grep -C1 5
### context groups
seq 20 | grep -A1 -E '^(3|10)$'
### files with names
echo a > x; echo a > y; grep a x y; grep -h a x y; grep -l a x y; grep -L z x y; grep -H a x
### quiet
echo a | grep -q a; echo $?; echo a | grep -q b; echo $?
### missing file
grep x nofile 2>/dev/null; echo $?; grep -s x nofile; echo $?
### patterns from file
printf 'a\nb\n' > p; printf 'a1\nc1\nb1\n' | grep -f p
### several patterns
printf 'a\nb\nc\n' | grep -e a -e c
### max count
seq 10 | grep -m 2 1
### perl regex
echo "foo123" | grep -oP '\d+'; echo "price: 42 EUR" | grep -oP '(?<=price: )\d+'
### byte offset and empty
printf 'ab\ncd\n' | grep -b cd; printf 'a\n\nb\n' | grep -c '^$'
### anchors and classes
printf 'a1\n1a\n' | grep '^[[:digit:]]'; printf 'x y\n' | grep '[[:space:]]'
### back references
printf 'abab\nabac\n' | grep '\(ab\)\1'; printf 'aa\nab\n' | grep -E '(.)\1'
### binary file
printf 'a\0b\n' > f; grep -c a f; grep -a -o b f
### egrep style alternatives in basic
printf 'a\nb\nc\n' | grep 'a\|c'
### in a pipeline with cut
printf 'x:1\ny:2\n' | grep ^y | cut -d: -f2
### colors never
echo abc | grep --color=never b
