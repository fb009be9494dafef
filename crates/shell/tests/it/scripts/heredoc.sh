### expanded
x=5; cat <<END
x is $x $((x+1)) $(echo sub)
END
### quoted
cat <<'END'
$x `y` \z
END
### tabs stripped
cat <<-END
	one
		two
	END
### into a file
cat > f <<END
a
b
END
wc -l f
### here string
cat <<< "a b"; read -r x y <<< "1 2"; echo $y
### two documents
cat <<A; cat <<B
first
A
second
B
### in a loop
for i in 1 2; do cat <<END
i=$i
END
done
### in a function
f() { cat <<END
arg $1
END
}; f x
### to a pipe
cat <<END | tr a-z A-Z
loud
END
### with escapes
x=v; cat <<END
\$x \\ \` "q" 'q'
END
### fed to while
while read -r a; do echo "<$a>"; done <<END
l1
l2
END
### feeding bash
bash <<'END'
echo inner $((1+1))
END
### with arithmetic and arrays
a=(1 2 3); cat <<END
${a[1]} ${#a[@]} ${a[*]}
END
