package ledger

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Keys of the ConfigMap's data: one JSON document per entry, and the counter.
const (
	entryPrefix = "job."
	sequenceKey = "sequence"
)

// maxBytes bounds the list: an API server takes 1 MiB of data of a ConfigMap.
const maxBytes = 900 << 10

// ledgerDocument is the ConfigMap read as a ledger. An entry that cannot be read is an error, never
// skipped: what it protects is unknown.
type ledgerDocument struct{ cm *corev1.ConfigMap }

func (b *ledgerDocument) decodeEntries() ([]Entry, error) {
	var out []Entry
	for key, text := range b.cm.Data {
		if !strings.HasPrefix(key, entryPrefix) {
			continue
		}
		e, err := decodeEntry(key, text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (b *ledgerDocument) getEntry(uid types.UID) (Entry, bool, error) {
	key := entryPrefix + string(uid)
	text, ok := b.cm.Data[key]
	if !ok {
		return Entry{}, false, nil
	}
	e, err := decodeEntry(key, text)
	return e, err == nil, err
}

func decodeEntry(key, text string) (Entry, error) {
	var e Entry
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return Entry{}, fmt.Errorf("data[%s]: %w", key, err)
	}
	if err := e.normalizeFields(); err != nil {
		return Entry{}, fmt.Errorf("data[%s]: %w", key, err)
	}
	if key != entryPrefix+string(e.UID) {
		return Entry{}, fmt.Errorf("data[%s]: %w: uid is %s", key, ErrInvalidEntry, e.UID)
	}
	return e, nil
}

func (b *ledgerDocument) putEntry(e Entry) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	b.setText(entryPrefix+string(e.UID), string(text))
	return nil
}

// sizeBytes is what the list takes of maxBytes.
func (b *ledgerDocument) sizeBytes() int {
	size := 0
	for key, text := range b.cm.Data {
		size += len(key) + len(text)
	}
	return size
}

func (b *ledgerDocument) removeEntry(uid types.UID) bool {
	key := entryPrefix + string(uid)
	_, ok := b.cm.Data[key]
	delete(b.cm.Data, key)
	b.unlockVolumes(uid)
	return ok
}

func (b *ledgerDocument) nextSequences(n int, above int64) (first int64, err error) {
	last := int64(0)
	if text, ok := b.cm.Data[sequenceKey]; ok {
		if last, err = strconv.ParseInt(text, 10, 64); err != nil {
			return 0, fmt.Errorf("data[%s]: %w", sequenceKey, err)
		}
	}
	last = max(last, above)
	b.setText(sequenceKey, strconv.FormatInt(last+int64(n), 10))
	return last + 1, nil
}

func (b *ledgerDocument) setText(key, text string) {
	if b.cm.Data == nil {
		b.cm.Data = map[string]string{}
	}
	b.cm.Data[key] = text
}
