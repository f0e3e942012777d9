package itemset

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// ReadSpooled returns the object at that place of a file, for which Add or Each gave it.
func ReadSpooled(path string, offset int64) (SpooledItem, error) {
	var it SpooledItem
	f, err := os.Open(path)
	if err != nil {
		return it, fmt.Errorf("read a spooled object: %w", err)
	}
	defer func() { _ = f.Close() }()
	err = it.readAt(f, offset)
	if err != nil {
		return it, fmt.Errorf("read a spooled object: %w", err)
	}
	return it, nil
}

func (it *SpooledItem) readAt(f io.ReaderAt, offset int64) error {
	var prefix [prefixBytes]byte
	if _, err := f.ReadAt(prefix[:], offset); err != nil {
		return shortRecordError(err)
	}
	texts, body, err := recordLengths(prefix[:])
	if err != nil {
		return err
	}
	record := make([]byte, texts+body)
	if _, err := f.ReadAt(record, offset+prefixBytes); err != nil {
		return shortRecordError(err)
	}
	if err := it.decodeTexts(record[:texts]); err != nil {
		return err
	}
	return it.decodeBody(record[texts:])
}

func shortRecordError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends in a record", ErrCorruptSpool)
	}
	return err
}

// EachSpooled calls fn for every object of a file in the order they were written, without its body, and
// where it is.
func EachSpooled(path string, fn func(offset int64, it *SpooledItem) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read an item spool: %w", err)
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, 64<<10)
	var offset int64
	for {
		it, size, err := nextRecord(in)
		if err == io.EOF { //nolint:errorlint // the end of a file, not inside a record
			return nil
		}
		if err != nil {
			return fmt.Errorf("read an item spool: %w", err)
		}
		if err := fn(offset, &it); err != nil {
			return err
		}
		offset += size
	}
}

// nextRecord reads the names of a record and steps over its body.
func nextRecord(in *bufio.Reader) (it SpooledItem, size int64, err error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(in, prefix[:]); err != nil {
		if err == io.EOF {
			return it, 0, err
		}
		return it, 0, shortRecordError(err)
	}
	texts, body, err := recordLengths(prefix[:])
	if err != nil {
		return it, 0, err
	}
	names := make([]byte, texts)
	if _, err := io.ReadFull(in, names); err != nil {
		return it, 0, shortRecordError(err)
	}
	if err := it.decodeTexts(names); err != nil {
		return it, 0, err
	}
	if _, err := in.Discard(body); err != nil {
		return it, 0, shortRecordError(err)
	}
	return it, int64(prefixBytes + texts + body), nil
}
