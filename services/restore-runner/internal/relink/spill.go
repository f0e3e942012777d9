package relink

import (
	"errors"
	"os"
)

// spill is a file without a name that grows; it is made when it is first needed. add and close are
// not safe for concurrent use.
type spill struct {
	dir  string
	file *os.File
	size int64
}

// add appends to the file and returns where.
func (s *spill) add(data []byte) (at int64, err error) {
	if s.file == nil {
		file, err := os.CreateTemp(s.dir, "owned-*")
		if err != nil {
			return 0, err
		}
		if err := os.Remove(file.Name()); err != nil {
			return 0, errors.Join(err, file.Close())
		}
		s.file = file
	}
	if _, err := s.file.WriteAt(data, s.size); err != nil {
		return 0, err
	}
	at = s.size
	s.size += int64(len(data))
	return at, nil
}

// read returns a part of the file. It may be called beside add.
func (s *spill) read(at, end int64) ([]byte, error) {
	data := make([]byte, end-at)
	_, err := s.file.ReadAt(data, at)
	return data, err
}

func (s *spill) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
