package doctor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/holdfast-io/holdfast/pkg/layout"
	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

const (
	// bucketPrefix is where everything that is written lies; no backup does.
	bucketPrefix = layout.MetadataDir + "holdfast/doctor/"
	// composedBytes is the size of the piece that is composed: 5 MiB is the least that S3 copies as a
	// part.
	composedBytes = 5 << 20
	// creators is how many create one object at once.
	creators = 4
	// cleanLimit bounds the removal of what was written, which has a time of its own: it is made
	// after a check that ran out of time or was interrupted, too.
	cleanLimit = 30 * time.Second
)

// bucketProblem is something that a bucket does not do.
type bucketProblem struct {
	status          Status
	message, remedy string
}

// bucketCheck is the check of one store, under a prefix of its own.
type bucketCheck struct {
	store    objectstore.Store
	clock    clock.PassiveClock
	prefix   string
	problems []bucketProblem
	// contended has several create one object at once; a store without conditional creation lets
	// more than one of them succeed.
	contended bool
}

func newBucket(store objectstore.Store, clk clock.PassiveClock) *bucketCheck {
	return &bucketCheck{store: store, clock: clk, prefix: bucketPrefix + rand.Text() + "/"}
}

// examineBucket does what services do with a bucket, and removes what it wrote. It returns what failed.
func (b *bucketCheck) examineBucket(ctx context.Context) []bucketProblem {
	if b.noteStep("write an object and read it", b.writeObject(ctx)) {
		b.noteStep("read a range of an object", b.checkRanges(ctx))
		if b.contended {
			b.noteStep("create an object only if there is none", b.checkCreate(ctx))
		}
		b.noteStep("compose an object of others", b.checkCompose(ctx))
	}
	b.cleanPrefix(context.WithoutCancel(ctx))
	return b.problems
}

// noteStep notes an error, and reports whether there was none.
func (b *bucketCheck) noteStep(what string, err error) bool {
	if err != nil {
		b.problems = append(b.problems, bucketProblem{Failed, "cannot " + what + ": " + err.Error(), stepRemedy(err)})
	}
	return err == nil
}

// errBehaviour means that a call succeeded and did something else than it should.
var errBehaviour = errors.New("the store does not do what S3 does")

func stepRemedy(err error) string {
	if errors.Is(err, errBehaviour) {
		return "use another object store, or another version of it: backups are not safe in one that does this"
	}
	return remedyFor(err)
}

// writeObject writes an object, and compares the store's clock with this machine's.
func (b *bucketCheck) writeObject(ctx context.Context) error {
	key, text := b.prefix+"written", []byte("0123456789abcdef")
	before := b.clock.Now()
	if err := objectstore.PutBytes(ctx, b.store, key, text); err != nil {
		return err
	}
	after := b.clock.Now()
	have, err := objectstore.ReadAll(ctx, b.store, key, int64(len(text)))
	if err != nil {
		return err
	}
	if !bytes.Equal(have, text) {
		return fmt.Errorf("%w: what was read is not what was written", errBehaviour)
	}
	info, err := b.store.Stat(ctx, key)
	if err != nil {
		return err
	}
	b.noteSkew(info.ModTime, before, after)
	return nil
}

// noteSkew notes how far the store's clock is off. Stores state whole seconds, some no time at all.
func (b *bucketCheck) noteSkew(stored, before, after time.Time) {
	if stored.IsZero() {
		return
	}
	var off time.Duration
	if ahead := stored.Sub(after); ahead > 0 {
		off = ahead
	} else if behind := before.Sub(stored.Add(time.Second)); behind > 0 {
		off = behind
	}
	const fix = "set the clocks of this machine, the nodes and the object store with NTP"
	text := fmt.Sprintf("the clocks of the store and of this machine are %s apart", off.Round(time.Second))
	switch {
	case off >= skewRefused:
		b.problems = append(b.problems, bucketProblem{Failed, text, fix + ": S3 refuses requests that are 15 minutes off"})
	case off >= skewNoted:
		b.problems = append(b.problems, bucketProblem{Warning, text, fix})
	}
}

func (b *bucketCheck) checkRanges(ctx context.Context) error {
	const from, length, want = 10, 4, "abcd"
	body, err := b.store.GetRange(ctx, b.prefix+"written", from, length)
	if err != nil {
		return err
	}
	have, err := io.ReadAll(io.LimitReader(body, composedBytes))
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	if string(have) != want {
		return fmt.Errorf("%w: bytes %d to %d were asked for, and other ones came", errBehaviour, from, from+length-1)
	}
	return nil
}

// checkCreate has several create one object at the same time: exactly one may.
func (b *bucketCheck) checkCreate(ctx context.Context) error {
	created := make([]bool, creators)
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range creators {
		group.Go(func() error {
			err := objectstore.CreateBytes(groupCtx, b.store, b.prefix+"created", []byte{byte('a' + i)})
			created[i] = err == nil
			if errors.Is(err, objectstore.ErrExists) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	winner, n := byte(0), 0
	for i, won := range created {
		if won {
			winner, n = byte('a'+i), n+1
		}
	}
	if n != 1 {
		return fmt.Errorf("%w: of %d concurrent creations of one object %d succeeded", errBehaviour, creators, n)
	}
	have, err := objectstore.ReadAll(ctx, b.store, b.prefix+"created", 1)
	if err == nil && !bytes.Equal(have, []byte{winner}) {
		err = fmt.Errorf("%w: the object is not the one whose creation succeeded", errBehaviour)
	}
	return err
}

// checkCompose makes an object of a part that the store copies and of bytes from here.
func (b *bucketCheck) checkCompose(ctx context.Context) error {
	const tail = "the end"
	key, piece := b.prefix+"composed", make([]byte, composedBytes)
	_, _ = rand.Read(piece) // never fails
	if err := objectstore.PutBytes(ctx, b.store, b.prefix+"piece", piece); err != nil {
		return err
	}
	info, err := b.store.Compose(ctx, key, []objectstore.Source{{Key: b.prefix + "piece", Length: -1}, {Data: []byte(tail)}})
	if err != nil {
		return err
	}
	if info.Size != composedBytes+int64(len(tail)) {
		return fmt.Errorf("%w: the composed object has %d bytes and not %d", errBehaviour, info.Size, composedBytes+len(tail))
	}
	const overlap = 16
	body, err := b.store.GetRange(ctx, key, composedBytes-overlap, -1)
	if err != nil {
		return err
	}
	have, err := io.ReadAll(io.LimitReader(body, composedBytes))
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	if want := append(bytes.Clone(piece[composedBytes-overlap:]), tail...); !bytes.Equal(have, want) {
		return fmt.Errorf("%w: the composed object has other content than its pieces", errBehaviour)
	}
	return nil
}

// cleanPrefix removes everything below the prefix, unfinished writes too. What stays is a problem.
func (b *bucketCheck) cleanPrefix(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanLimit)
	defer cancel()
	keys, err := b.listKeys(ctx)
	for _, key := range keys {
		err = errors.Join(err, b.store.Delete(ctx, key))
	}
	_, swept := objectstore.SweepUploads(ctx, b.store, b.prefix, func(objectstore.Upload) (bool, error) { return true, nil })
	err = errors.Join(err, swept)
	if err == nil {
		if keys, err = b.listKeys(ctx); err == nil && len(keys) > 0 {
			err = fmt.Errorf("%w: deleted objects are still listed", errBehaviour)
		}
	}
	if err != nil {
		b.noteStep("delete what was written", err)
		at := &b.problems[len(b.problems)-1]
		at.remedy += "; then delete what is left below " + b.prefix
	}
}

func (b *bucketCheck) listKeys(ctx context.Context) (keys []string, err error) {
	err = b.store.List(ctx, b.prefix, func(i objectstore.Info) error {
		keys = append(keys, i.Key)
		return nil
	})
	return keys, err
}
