// Package extsort sorts more records than fit into memory.
package extsort
