// Package fakes compares the fakes that other tests use with what they stand for.
package fakes
