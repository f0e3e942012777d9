package operation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unsafe"

	"github.com/holdfast-io/holdfast/pkg/job/document"
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
	// maxKept bounds what the operations of a list take in memory with their states: some 40,000 with
	// texts of the usual length. The limit of memory of a runner includes it.
	maxKept = 24 << 20
	// textBytes is what a string takes besides its bytes, and internedBytes one that is kept once for
	// all operations: in the table of these.
	textBytes, internedBytes = 8, 64
)

// keeper keeps the operations of a list in little memory: texts that repeat are kept once.
type keeper struct {
	count bool // nothing is kept
	texts map[string]string
	fresh []string // of the texts, those of the operation that is tried
	tries bool
	used  int
	ops   []Operation
}

// try is add that leaves nothing of an operation that is refused.
func (k *keeper) try(op *Operation) error {
	before := k.used
	k.tries = true
	err := k.add(op)
	if err != nil {
		k.used = before
		for _, text := range k.fresh {
			delete(k.texts, text)
		}
	}
	k.tries, k.fresh = false, nil
	return err
}

// add keeps one operation. The error wraps jsonlimit.ErrLimit where that takes more than maxKept.
func (k *keeper) add(op *Operation) error {
	k.used += int(unsafe.Sizeof(Operation{}) + unsafe.Sizeof(State{}))
	k.own(op.ID, op.Key)
	for _, text := range []*string{&op.Action, &op.Kind} {
		k.share(text)
	}
	k.resource(&op.Item)
	for i := range op.PostOperation {
		k.used += int(unsafe.Sizeof(Resource{}))
		k.resource(&op.PostOperation[i])
	}
	if op.Home != nil {
		k.used += int(unsafe.Sizeof(Home{}))
		k.share(&op.Home.Instance)
		k.share(&op.Home.Process)
	}
	if op.End != nil {
		k.used += int(unsafe.Sizeof(End{})) + progressTimes
		k.own(op.End.Error, op.End.Units, op.End.Description)
	}
	if k.used > maxKept {
		return fmt.Errorf("%w: the operations take more than %d bytes of memory", jsonlimit.ErrLimit, maxKept)
	}
	if !k.count {
		k.ops = append(k.ops, *op)
	}
	return nil
}

// progressTimes is what the times of a Progress take.
const progressTimes = 2 * 24

func (k *keeper) resource(r *Resource) {
	for _, text := range []*string{&r.Group, &r.Resource, &r.Namespace} {
		k.share(text)
	}
	k.own(r.Name)
}

// own counts texts that repeat in no other operation.
func (k *keeper) own(texts ...string) {
	for _, text := range texts {
		k.used += textBytes + len(text)
	}
}

// share replaces a text by an equal one of another operation.
func (k *keeper) share(text *string) {
	if *text == "" {
		return
	}
	known, ok := k.texts[*text]
	if !ok {
		known = *text
		k.texts[known] = known
		k.used += internedBytes + len(known)
		if k.tries {
			k.fresh = append(k.fresh, known)
		}
	}
	if !k.count {
		*text = known
	}
}

// Decode decodes a JSON object with a list of operations as its member "operations", which is kept in
// little memory, and calls member with every other one. The error wraps jsonlimit.ErrLimit where the
// text is too large: for a list that Seal does not take.
func Decode(r io.Reader, member func(key string, value json.RawMessage) error) ([]Operation, error) {
	k := &keeper{}
	err := k.decode(r, member)
	return k.ops, err
}

// Decodable returns the error that Decode would return.
func Decodable(r io.Reader, member func(key string, value json.RawMessage) error) error {
	return (&keeper{count: true}).decode(r, member)
}

func (k *keeper) decode(r io.Reader, member func(key string, value json.RawMessage) error) error {
	k.texts = map[string]string{}
	limits := jsonlimit.Limits{Text: maxListBytes, Element: maxOneBytes, Member: maxMemberBytes, Decoded: maxOneDecoded}
	return jsonlimit.EachIn(r, "operations", limits, member, k.add)
}

// DecodeMember decodes a member of an object into the field of that name in a struct.
func DecodeMember(key string, value json.RawMessage, into any) error {
	name, err := json.Marshal(key)
	if err != nil {
		return err
	}
	return jsonlimit.Unmarshal(fmt.Appendf(nil, "{%s:%s}", name, value), into, maxMemberDecoded)
}

// member decodes what a list has besides its operations.
func (l *List) member(key string, value json.RawMessage) error { return DecodeMember(key, value, l) }

// encode returns the text of a list that decode takes; the error wraps document.ErrTooLarge where it
// takes none.
func encode(l *List) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	if err := Decodable(bytes.NewReader(text), new(List).member); err != nil {
		return nil, fmt.Errorf("%w: %w", document.ErrTooLarge, err)
	}
	return text, nil
}
