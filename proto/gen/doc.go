// Package gen holds the Go code generated from the contracts.
package gen
