package objectstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxKeyBytes is the longest key any supported store takes (S3's limit).
const MaxKeyBytes = 1024

// CheckKey reports whether key may name an object: 1 to MaxKeyBytes bytes of UTF-8 without control
// characters, segments separated by single slashes, none of them empty, "." or "..". Errors wrap
// ErrInvalidKey.
func CheckKey(key string) error {
	if key == "" {
		return fmt.Errorf("%w: empty", ErrInvalidKey)
	}
	if err := checkText(key); err != nil {
		return err
	}
	for seg := range strings.SplitSeq(key, "/") {
		switch seg {
		case "":
			return fmt.Errorf("%w: %q has an empty path segment", ErrInvalidKey, key)
		case ".", "..":
			return fmt.Errorf("%w: %q has a %q path segment", ErrInvalidKey, key, seg)
		}
	}
	return nil
}

// CheckPrefix reports whether prefix may start a key: like CheckKey, but it may be empty or end in
// "/".
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

// CheckDir reports whether prefix is empty or a valid prefix that ends in "/".
func CheckDir(prefix string) error {
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("%w: prefix %q does not end in a slash", ErrInvalidKey, prefix)
	}
	return CheckPrefix(prefix)
}

// CheckRange reports whether off and n form a range GetRange accepts.
func CheckRange(key string, off int64) error {
	if off < 0 {
		return fmt.Errorf("%w: %s: offset %d", ErrInvalidRange, key, off)
	}
	return nil
}

func checkText(s string) error {
	if len(s) > MaxKeyBytes {
		return fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrInvalidKey, len(s), MaxKeyBytes)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%w: %q is not UTF-8", ErrInvalidKey, s)
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f {
			return fmt.Errorf("%w: %q holds a control character", ErrInvalidKey, s)
		}
	}
	return nil
}
