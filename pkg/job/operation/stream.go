package operation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/holdfast-io/holdfast/pkg/job/journal"
	"github.com/holdfast-io/holdfast/pkg/json/jsonlimit"
)

const (
	// maxListBytes bounds the text of a list, which is read as a stream, and maxOneBytes one operation
	// in it; maxOneDecoded is what one may take while it is decoded. maxMemberBytes and
	// maxMemberDecoded are the same for what there is besides the operations.
	maxListBytes     = 64 << 20
	maxOneBytes      = 512 << 10
	maxOneDecoded    = 4 * maxOneBytes
	maxMemberBytes   = 8 << 20
	maxMemberDecoded = 4 * maxMemberBytes
	// maxListed bounds the operations of a list that is read: calls that an earlier holder of the job may
	// have made are repeated beyond MaxOperations.
	maxListed = 2 * MaxOperations
	// maxIDBytes bounds the ID of an operation.
	maxIDBytes = 1 << 10
)

// limitChecker checks the operations of a list one after the other.
type limitChecker struct{ operations, postItems int }

// checkOperation returns an error that wraps jsonlimit.ErrLimit where a list does not take the operation after
// those before.
func (l *limitChecker) checkOperation(op *Operation) error {
	l.operations++
	l.postItems += len(op.PostOperation)
	switch {
	case l.operations > maxListed:
		return fmt.Errorf("%w: the list has more than %d operations", jsonlimit.ErrLimit, maxListed)
	case len(op.ID) > maxIDBytes:
		return fmt.Errorf("%w: the ID of an operation has %d bytes", jsonlimit.ErrLimit, len(op.ID))
	case len(op.PostOperation) > MaxPostItems, l.postItems > MaxJobPostItems:
		return fmt.Errorf("%w: the list has too many post-operation items", jsonlimit.ErrLimit)
	}
	return nil
}

// Decode decodes a JSON object with a list of operations as its member "operations", and calls member
// with every other one. The error wraps jsonlimit.ErrLimit where the list is over a limit.
func Decode(r io.Reader, member func(key string, value json.RawMessage) error) (ops []Operation, _ error) {
	var limits limitChecker
	err := decodeEach(r, member, func(op *Operation) error {
		ops = append(ops, *op)
		return limits.checkOperation(op)
	})
	return ops, err
}

// Decodable returns the error that Decode would return.
func Decodable(r io.Reader, member func(key string, value json.RawMessage) error) error {
	return decodeEach(r, member, new(limitChecker).checkOperation)
}

func decodeEach(r io.Reader, member func(key string, value json.RawMessage) error, each func(*Operation) error) error {
	limits := jsonlimit.Limits{Text: maxListBytes, Element: maxOneBytes, Member: maxMemberBytes, Decoded: maxOneDecoded}
	return jsonlimit.EachIn(r, "operations", limits, member, each)
}

// DecodeMember decodes a member of an object into the field of that name in a struct.
func DecodeMember(key string, value json.RawMessage, into any) error {
	name, err := json.Marshal(key)
	if err != nil {
		return err
	}
	return jsonlimit.Unmarshal(fmt.Appendf(nil, "{%s:%s}", name, value), into, maxMemberDecoded)
}

// decodeMember decodes what a list has besides its operations.
func (l *List) decodeMember(key string, value json.RawMessage) error {
	return DecodeMember(key, value, l)
}

// CheckSize returns an error that wraps document.ErrDocumentTooLarge where no list takes the operation: the names of its post-operation items
// are too long.
func CheckSize(op Operation) error {
	_, err := encodeList(&List{Operations: []Operation{op}})
	return err
}

// encodeList returns the text of a list that Decode takes; the error wraps document.ErrDocumentTooLarge where it
// takes none.
func encodeList(l *List) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	if err := Decodable(bytes.NewReader(text), new(List).decodeMember); err != nil {
		return nil, fmt.Errorf("%w: %w", journal.ErrDocumentTooLarge, err)
	}
	return text, nil
}
