### star and question
touch a b ab abc; echo * ? ?? a*
### sets
touch a1 a2 b1 c3; echo [ab]1 a[0-9] [!a]? [^b]*
### hidden
touch .h v; echo * .h*; shopt -s dotglob; echo *
### no match stays
echo nothing*here
### directories
mkdir -p d1 d2/e; touch d1/x d2/y d2/e/z; echo */ */* d?/[xy]
### globstar
mkdir -p a/b/c; touch a/1.t a/b/2.t a/b/c/3.t; shopt -s globstar; echo **/*.t a/**
### extglob
shopt -s extglob; touch foo.c foo.h bar.c; echo !(*.c) *.@(c|h) ?(foo).c +(foo|bar).c
### in case
shopt -s extglob
for x in aab b; do case $x in +(a)b) echo $x;; esac; done
### spaces in names
touch "a b" "c d"; for f in *; do echo "[$f]"; done; ls "a b"
### nocaseglob
touch A b; shopt -s nocaseglob; echo a*
### character classes
touch a1 bb 3c; echo [[:alpha:]]* [[:digit:]]*
### quoting part
touch 'x*y' xzy; echo x*y "x*"y
### noglob
touch a; set -f; echo *; set +f; echo *
### sorted
touch c a B _ 1; echo *
### glob in array count
touch 1.log 2.log; f=(*.log); echo ${#f[@]}
### failglob status
shopt -s nullglob; for f in *.zzz; do echo never; done; echo done
