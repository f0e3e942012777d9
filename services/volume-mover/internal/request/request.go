// Package request is what a mover is asked to do, as flags or as a JSON file.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
	"github.com/holdfast-io/holdfast/pkg/spec/selection"
	"github.com/holdfast-io/holdfast/pkg/volumedata/repository"
	"github.com/holdfast-io/holdfast/services/volume-mover/internal/maintain"
)

const (
	// maxBytes is the longest request that is read.
	maxBytes = 1 << 20
	// maxParallel is how many files may be transferred at once.
	maxParallel = 64
	// maxMiB bounds the cache and the memory.
	maxMiB = 1 << 24
	// maxCheckpoint is the longest interval of checkpoints that kopia takes.
	maxCheckpoint = 45 * time.Minute
)

// Request is one transfer, snapshots to forget, or a run of maintenance.
type Request struct {
	// Location is a file with the manifests of one BackupStorageLocation and the Secrets that it names.
	Location string `json:"location"`
	// Namespace is the namespace of the volume on the cluster where it is backed up; it has a
	// repository of its own.
	Namespace string `json:"namespace"`
	// PasswordFile has the password of the repository.
	PasswordFile string `json:"passwordFile"`
	// CacheDir is where the cache is made, and removed at the end; empty is the directory of temporary
	// files.
	CacheDir string `json:"cacheDir,omitempty"`
	// CacheMiB bounds the cache.
	CacheMiB int64 `json:"cacheMiB"`
	// MemoryMiB is what the process tries to take at most; 0 is no limit.
	MemoryMiB int64 `json:"memoryMiB"`
	// Parallel is how many files are transferred at once.
	Parallel int `json:"parallel"`
	// ResultFile is where the result is written too, cut to 4096 bytes; empty is nowhere. It is for the
	// termination log of a Pod.
	ResultFile string `json:"resultFile,omitempty"`
	// Upload, Restore, Forget or Maintain is set.
	Upload   *Upload   `json:"upload,omitempty"`
	Restore  *Restore  `json:"restore,omitempty"`
	Forget   *Forget   `json:"forget,omitempty"`
	Maintain *Maintain `json:"maintain,omitempty"`
}

// Upload stores a volume as a snapshot.
type Upload struct {
	// Source is the directory or block device.
	Source string `json:"source"`
	// Pod is the Pod whose volume it is; without one it is the volume of a CSI snapshot.
	Pod string `json:"pod,omitempty"`
	// Volume is the name of the claim, or of the Pod's volume if it has none.
	Volume string `json:"volume"`
	// ClaimUID is the UID of the claim, by which the earlier snapshot is found.
	ClaimUID string `json:"claimUID,omitempty"`
	// OperationID is the ID of the operation that the snapshot is taken for; not with a Pod.
	OperationID string `json:"operationID,omitempty"`
	// CreateRepository creates the repository if there is none.
	CreateRepository bool `json:"createRepository,omitempty"`
	// CheckpointInterval is how much time of work a kill may cost.
	CheckpointInterval metav1.Duration `json:"checkpointInterval"`
}

// Restore writes a snapshot into a volume.
type Restore struct {
	// Snapshot is the ID of the snapshot.
	Snapshot string `json:"snapshot"`
	// Target is the directory or block device.
	Target string `json:"target"`
	// Overwrite lets the directory hold entries; those that the snapshot has too are replaced.
	Overwrite bool `json:"overwrite,omitempty"`
	// DeleteExtra removes the entries that the snapshot does not have.
	DeleteExtra bool `json:"deleteExtra,omitempty"`
	// Paths are the files and directories to restore, relative to the directory; none restores all. Needs Overwrite.
	Paths []string `json:"paths,omitempty"`
	// DoneFile is the name of a file in .velero of the directory that is made when all content is there;
	// empty makes none. Restored Pods wait for the UID of their Restore.
	DoneFile string `json:"doneFile,omitempty"`
}

// Forget removes snapshots from the repository.
type Forget struct {
	// Snapshots are their IDs.
	Snapshots []string `json:"snapshots"`
}

// Maintain maintains the repository.
type Maintain struct {
	// Mode is auto, quick, full or create.
	Mode string `json:"mode"`
	// FullInterval is the time between two full runs of mode auto; 0: never.
	FullInterval metav1.Duration `json:"fullInterval"`
	// Holder names this installation to others that use the bucket.
	Holder string `json:"holder"`
}

// Default returns a request with nothing but defaults.
func Default() Request {
	return Request{CacheMiB: 256, MemoryMiB: 128, Parallel: 4}
}

// DefaultUpload returns an upload with nothing but defaults.
func DefaultUpload() Upload {
	return Upload{CheckpointInterval: metav1.Duration{Duration: 5 * time.Minute}}
}

// UnmarshalJSON gives what is not there its default.
func (u *Upload) UnmarshalJSON(data []byte) error {
	type plain Upload
	filled := plain(DefaultUpload())
	if err := decodeStrictly(data, &filled); err != nil {
		return err
	}
	*u = Upload(filled)
	return nil
}

// Decode reads a request as JSON. Values that are not there have their defaults, unknown ones are an
// error, and so is a request that is not valid.
func Decode(r io.Reader) (Request, error) {
	req := Default()
	data, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	switch {
	case err != nil:
		return req, err
	case len(data) > maxBytes:
		return req, fmt.Errorf("the request is longer than %d bytes", maxBytes)
	}
	if err := decodeStrictly(data, &req); err != nil {
		return req, err
	}
	return req, req.Validate()
}

func decodeStrictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the request")
	}
	return nil
}

// Validate checks the request. Errors name the field.
func (r *Request) Validate() error {
	switch {
	case r.Location == "":
		return errgrpc.Field("location", "is required")
	case r.PasswordFile == "":
		return errgrpc.Field("passwordFile", "is required")
	case len(validation.IsDNS1123Label(r.Namespace)) > 0:
		return errgrpc.Field("namespace", "%q is not the name of a namespace", r.Namespace)
	case r.CacheMiB < 0 || r.CacheMiB > maxMiB:
		return errgrpc.Field("cacheMiB", "must be 0 to %d", maxMiB)
	case r.MemoryMiB < 0 || r.MemoryMiB > maxMiB:
		return errgrpc.Field("memoryMiB", "must be 0 to %d", maxMiB)
	case r.Parallel < 1 || r.Parallel > maxParallel:
		return errgrpc.Field("parallel", "must be 1 to %d", maxParallel)
	case r.countKinds() != 1:
		return errgrpc.Field("upload", "one of upload, restore, forget and maintain is required")
	case r.Upload != nil:
		return r.Upload.checkFields()
	case r.Restore != nil:
		return r.Restore.checkFields()
	case r.Maintain != nil:
		return r.Maintain.checkFields()
	case len(r.Forget.Snapshots) == 0 || slices.Contains(r.Forget.Snapshots, ""):
		return errgrpc.Field("forget.snapshots", "is required")
	}
	return nil
}

func (r *Request) countKinds() (n int) {
	for _, is := range []bool{r.Upload != nil, r.Restore != nil, r.Forget != nil, r.Maintain != nil} {
		if is {
			n++
		}
	}
	return n
}

func (u *Upload) checkFields() error {
	switch {
	case u.Source == "":
		return errgrpc.Field("upload.source", "is required")
	case u.Pod != "" && len(validation.IsDNS1123Subdomain(u.Pod)) > 0:
		return errgrpc.Field("upload.pod", "%q is not the name of a Pod", u.Pod)
	case len(validation.IsDNS1123Subdomain(u.Volume)) > 0:
		return errgrpc.Field("upload.volume", "%q is not the name of a claim or volume", u.Volume)
	case u.Pod != "" && u.OperationID != "":
		return errgrpc.Field("upload.operationID", "cannot be set together with pod")
	case u.CheckpointInterval.Duration < time.Second || u.CheckpointInterval.Duration > maxCheckpoint:
		return errgrpc.Field("upload.checkpointInterval", "must be 1s to %s", maxCheckpoint)
	}
	return nil
}

func (r *Restore) checkFields() error {
	switch {
	case r.Snapshot == "":
		return errgrpc.Field("restore.snapshot", "is required")
	case r.Target == "":
		return errgrpc.Field("restore.target", "is required")
	case r.DeleteExtra && !r.Overwrite:
		return errgrpc.Field("restore.deleteExtra", "needs overwrite")
	case r.DoneFile != "" && len(validation.IsDNS1123Subdomain(r.DoneFile)) > 0:
		return errgrpc.Field("restore.doneFile", "%q is not a UID", r.DoneFile)
	case len(r.Paths) == 0:
		return nil
	case !r.Overwrite || r.DeleteExtra || r.DoneFile != "":
		return errgrpc.Field("restore.paths", "needs overwrite, without deleteExtra and doneFile")
	}
	if err := selection.CheckPaths(r.Paths); err != nil {
		return errgrpc.Field("restore.paths", "%v", err)
	}
	return nil
}

func (m *Maintain) checkFields() error {
	switch {
	case !slices.Contains([]string{maintain.ModeAuto, maintain.ModeQuick, maintain.ModeFull, maintain.ModeCreate}, m.Mode):
		return errgrpc.Field("maintain.mode", "%q is none of auto, quick, full and create", m.Mode)
	case m.FullInterval.Duration < 0:
		return errgrpc.Field("maintain.fullInterval", "must not be negative")
	case m.Holder == "":
		return errgrpc.Field("maintain.holder", "is required")
	}
	return nil
}

// Source is the volume as the repository names it.
func (r *Request) Source() repository.Source {
	u := r.Upload
	s := repository.Source{
		Requester: repository.PodVolume, Namespace: r.Namespace, Pod: u.Pod, Volume: u.Volume, ClaimUID: u.ClaimUID, OperationID: u.OperationID,
	}
	if u.Pod == "" {
		s.Requester = repository.DataUpload
	}
	return s
}
