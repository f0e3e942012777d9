package part

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/holdfast-io/holdfast/pkg/joblog"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

// SidecarReader reads a sidecar: first all entries, then all notes, then the counts. It is not safe
// for concurrent use.
type SidecarReader struct {
	zip   *gzip.Reader
	texts texts
	phase int
	sum   partCounts
}

const (
	inEntries = iota
	inNotes
	atEnd
)

func appendLengths(dst []byte, lengths ...int) []byte {
	for _, n := range lengths {
		dst = binary.AppendUvarint(dst, uint64(n)) //nolint:gosec // lengths are not negative
	}
	return dst
}

// OpenSidecar begins to read a sidecar. Anything wrong with it is ErrCorrupt, here or later; errors
// of r are passed on.
func OpenSidecar(r io.Reader) (*SidecarReader, error) {
	zip, err := gzip.NewReader(bufio.NewReaderSize(r, 16<<10))
	if err != nil {
		return nil, corruptSidecarError(err)
	}
	s := &SidecarReader{zip: zip, texts: texts{in: bufio.NewReaderSize(zip, 16<<10), limit: maxRecord}}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(s.texts.in, head); err != nil {
		return nil, corruptSidecarError(err)
	}
	if string(head) != magic {
		return nil, fmt.Errorf("%w: unknown format", ErrCorrupt)
	}
	return s, nil
}

func corruptSidecarError(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// Next returns the next entry's record in order of keys; equal keys come in the order they were
// added. io.EOF follows the last one. ParseEntry decodes it; the slices are valid until the next
// call.
func (s *SidecarReader) Next() (key, value []byte, err error) {
	if s.phase != inEntries {
		return nil, nil, io.EOF
	}
	pair, err := s.texts.nextTexts(2)
	if err != nil {
		return nil, nil, corruptSidecarError(err)
	}
	if len(pair[0])+len(pair[1]) == 0 {
		s.phase = inNotes
		return nil, nil, io.EOF
	}
	return pair[0], pair[1], nil
}

// Note returns the next log entry, io.EOF after the last one. It skips what is left of the entries.
func (s *SidecarReader) Note() (joblog.Entry, error) {
	for s.phase == inEntries {
		if _, _, err := s.Next(); err != nil && s.phase == inEntries {
			return joblog.Entry{}, err
		}
	}
	if s.phase == atEnd {
		return joblog.Entry{}, io.EOF
	}
	note, err := s.texts.nextTexts(1)
	if err != nil {
		return joblog.Entry{}, corruptSidecarError(err)
	}
	if len(note[0]) == 0 {
		return joblog.Entry{}, s.readTrailer()
	}
	var e joblog.Entry
	if err := jsonlimit.Unmarshal(note[0], &e, jsonlimit.Object); err != nil {
		return joblog.Entry{}, corruptSidecarError(err)
	}
	return e, nil
}

// readTrailer reads the counts and what guards the stream's end.
func (s *SidecarReader) readTrailer() error {
	counted, err := s.texts.nextTexts(1)
	if err != nil {
		return corruptSidecarError(err)
	}
	if err := json.Unmarshal(counted[0], &s.sum); err != nil {
		return corruptSidecarError(err)
	}
	if _, err := s.texts.in.ReadByte(); !errors.Is(err, io.EOF) {
		if err == nil {
			return fmt.Errorf("%w: something follows the end", ErrCorrupt)
		}
		return corruptSidecarError(err)
	}
	s.phase = atEnd
	return io.EOF
}

// Counts returns what the part holds. It is valid once Note has returned io.EOF.
func (s *SidecarReader) Counts() (items, failed, warnings, errors int) {
	return s.sum.Items, s.sum.Failed, s.sum.Warnings, s.sum.Errors
}
