// Package spelling tells how far a mistyped name is from a known one.
package spelling

// Distance counts the bytes to insert, delete, change or swap with their neighbour to make b from a.
func Distance(a, b string) int {
	// Rows of the table of distances between beginnings of a and b: two back, the last, this one.
	var before, last, row []int
	for i := 0; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		for j := 0; j <= len(b); j++ {
			if i == 0 || j == 0 {
				row[j] = i + j
				continue
			}
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
