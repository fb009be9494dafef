### substitute
echo "hello world" | sed 's/o/0/'; echo "hello world" | sed 's/o/0/g'; echo aaa | sed 's/a/b/2'
### groups
echo "john smith" | sed 's/\(.*\) \(.*\)/\2 \1/'; echo "a-b" | sed -E 's/(.)-(.)/\2-\1/'
### ampersand
echo word | sed 's/w.*/[&]/'
### delete and print
seq 5 | sed 2d; seq 5 | sed -n 3p; seq 5 | sed -n '2,4p'; seq 5 | sed '/3/d'; seq 5 | sed '$d'
### ranges by pattern
printf 'a\nSTART\nb\nEND\nc\n' | sed -n '/START/,/END/p'; printf 'a\nSTART\nb\nEND\nc\n' | sed '/START/,/END/d'
### several commands
echo abc | sed -e 's/a/1/' -e 's/b/2/'; echo abc | sed 's/a/1/;s/c/3/'
### in place
echo old > f; sed -i 's/old/new/' f; cat f; sed -i.bak 's/new/newer/' f; cat f f.bak
### append insert change
seq 3 | sed '2a after'; seq 3 | sed '2i before'; seq 3 | sed '2c changed'
### transliterate
echo abc | sed 'y/abc/xyz/'
### other delimiters
echo /usr/bin | sed 's|/usr|/opt|'; echo a/b | sed 's#/#-#'
### case insensitive
echo Hello | sed 's/hello/x/I'
### quit
seq 10 | sed 3q
### next and hold
seq 4 | sed 'N;s/\n/-/'; seq 3 | sed -n '1!G;h;$p'
### branches
echo aaa | sed ':x;s/a/b/;tx'
### step addresses
seq 6 | sed -n '1~2p'; seq 6 | sed '0~3d'
### negated address
seq 3 | sed '2!d'
### extended regex
echo "abc123" | sed -E 's/[a-z]+([0-9]+)/\1/'; echo aab | sed -E 's/a{2}/x/'
### line numbers
printf 'a\nb\n' | sed -n '$='; printf 'a\nb\n' | sed =
### uppercase
echo hello | sed 's/.*/\U&/'; echo HELLO | sed 's/\(.\)\(.*\)/\1\L\2/'
### write file
seq 3 | sed -n '2w out'; cat out
### read file
echo inner > r; seq 2 | sed '1r r'
### empty lines
printf 'a\n\n\nb\n' | sed '/^$/d'
### trim
echo "  x  " | sed 's/^ *//;s/ *$//' | cat -A
### script file
printf 's/a/b/\ns/c/d/\n' > s.sed; echo ac | sed -f s.sed
### newline in replacement
echo a,b | sed 's/,/\n/'
### several files in place
echo x > a; echo x > b; sed -i s/x/y/ a b; cat a b
### word boundary
echo "cat concat" | sed 's/\bcat\b/dog/'
