### simple
printf 'b\na\nc\n' | sort | head -1
### long
seq 1 100 | grep 7 | sed 's/7/x/' | sort -r | tail -n 3
### head ends the writer
yes | head -n 3
### status of the last
true | false; echo $?; false | true; echo $?
### pipe both
{ echo out; echo err >&2; } |& sort
### subshell in a pipe
x=1; echo 5 | read x; echo $x
### into a while loop
seq 3 | while read n; do echo $((n*n)); done
### word count
printf 'one two\nthree\n' | wc; printf 'abc' | wc -c
### uniq counts
printf 'a\nb\na\na\n' | sort | uniq -c | sort -rn | awk '{print $2, $1}'
### tac and rev
seq 3 | tac; echo abc | rev
### paste and column
paste <(seq 3) <(seq 4 6); paste -sd, <(seq 5); paste -d: - - < <(seq 4)
### join files
printf '1 a\n2 b\n' > x; printf '1 c\n2 d\n' > y; join x y
### comm
printf 'a\nb\n' > x; printf 'b\nc\n' > y; comm x y; comm -12 x y
### nl and cat n
printf 'a\nb\n' | nl; printf 'a\nb\n' | cat -n; printf 'a\tb\n' | cat -A
### head and tail
seq 10 | head -n 3; seq 10 | tail -n 2; seq 10 | head -n -7; seq 10 | tail -n +9; echo abcdef | head -c 3; echo
### fold and fmt
echo "aaa bbb ccc ddd" | fold -w 7; echo "a b c d e f" | fmt -w 5
### split
seq 10 > f; split -l 4 f p_; ls p_*; cat p_ab
### xargs
echo a b c | xargs -n 1 echo item; printf 'x y\nz\n' | xargs -I{} echo "<{}>"; seq 5 | xargs
### xargs null
touch "a b" c; find . -type f -print0 | sort -z | xargs -0 -n 1 echo got
### xargs with a command
printf '1\n2\n3\n' | xargs -n 2 sh -c 'echo $# $1' _
### tr forms
echo hello | tr l L; echo hello | tr -d l; echo aabbcc | tr -s a-z; echo abc | tr a-c x-z; echo "a1b2" | tr -cd 0-9; echo
### cut forms
echo a:b:c:d | cut -d: -f2; echo a:b:c:d | cut -d: -f2-3; echo abcdef | cut -c2-4; echo a,b | cut -d, -f1 --output-delimiter=x; printf 'nodelim\n' | cut -d: -f1 -s
### sort forms
printf '10\n9\n1\n' | sort; printf '10\n9\n1\n' | sort -n; printf 'b 2\na 3\nc 1\n' | sort -k2n; printf 'a\nB\nc\n' | sort -f; printf '1K\n1M\n5\n' | sort -h
### sort keys and unique
printf 'x:3\ny:1\nx:2\n' | sort -t: -k1,1 -k2,2nr; printf 'a\nb\na\n' | sort -u; printf '3\n1\n' | sort -r
### sort versions and checks
printf 'v1.10\nv1.9\n' | sort -V; printf 'a\nb\n' | sort -c; echo $?; printf 'b\na\n' | sort -c 2>/dev/null; echo $?
### uniq forms
printf 'a\na\nb\n' | uniq -d; printf 'a\na\nb\n' | uniq -u; printf 'A\na\n' | uniq -i; printf 'x 1\ny 1\n' | uniq -f1
### expand and unexpand
printf 'a\tb\n' | expand -t 4; printf '        x\n' | unexpand | od -c | head -1
### od and hex
printf 'AB\n' | od -An -tx1; printf 'AB' | xxd -p 2>/dev/null || printf '4142\n'
### base64
echo hello | base64; echo aGVsbG8K | base64 -d
### checksums
printf abc | md5sum; printf abc | sha256sum; printf abc | sha1sum
### seq forms
seq 3; seq 2 4; seq 1 2 7; seq 5 -2 1; seq -s, 3; seq -w 8 10; seq 0.5 0.5 1.5
### basename and dirname
basename /a/b/c.txt; basename /a/b/c.txt .txt; dirname /a/b/c.txt; dirname c; basename -a x/y z/w
### shuf is a permutation
seq 5 | shuf | sort -n | tr '\n' ' '; echo
### numbers of lines in files
printf 'a\nb\n' > x; printf 'c\n' > y; wc -l x y
### yes piped to sed
yes ab | head -2 | sed 's/a/x/'
### tsort and factor
printf 'a b\nb c\n' | tsort; factor 12 97
### env in a pipe
X=1 env | grep ^X=; env -i A=2 sh -c 'echo $A'
