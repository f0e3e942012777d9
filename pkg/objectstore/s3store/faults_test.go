package s3store

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/pkg/objectstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// largeSources is a source for parts of their own, with small ones around it.
func largeSources(t *testing.T, s *Store) (src []objectstore.Source, want string) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef"), 12*mib/16)
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "source", data))
	src = []objectstore.Source{{Data: []byte("<")}, {Key: "source", Length: int64(len(data))}, {Key: "source", Length: 7 * mib}, {Data: []byte(">")}}
	return src, "<" + string(data) + string(data[:7*mib]) + ">"
}

func TestConditionIsProbedOnce(t *testing.T) {
	f, s := newServer(t)
	for range 3 {
		ok, err := s.Honoured(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
	}
	require.Equal(t, 2, f.countRequests("PUT object"))
	require.Empty(t, f.objects)
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("v")))
	require.Zero(t, f.countRequests("HEAD object"), "a create is one request")
}

func TestAFailedProbeIsRepeated(t *testing.T) {
	f, s := newServer(t)
	f.refuse = func(r *http.Request) (int, string) {
		if r.Method == http.MethodPut {
			return http.StatusForbidden, "AccessDenied"
		}
		return 0, ""
	}
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "k", nil), objectstore.ErrAccess)
	f.refuse = nil
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "k", nil))
}

// A server on a file system refuses an object while it removes the emptied directory of its
// neighbours: the create failed although nothing was there.
func TestACreateThatMeetsAnEmptiedDirectoryIsRetried(t *testing.T) {
	f, s := newServer(t)
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "probe", nil))
	refused := 0
	f.refuse = func(r *http.Request) (int, string) {
		if r.Method != http.MethodPut || refused == 1 {
			return 0, ""
		}
		refused++
		return http.StatusConflict, "ExistingObjectIsDirectory"
	}
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "d/k", []byte("v")))
	require.Equal(t, 1, refused)
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "d/k", nil), objectstore.ErrExists)
}

// A create that is refused because of an object that is gone when it is asked for was reported as
// one of an existing object: its writer then took itself for a second one. A refusal that stands is
// reported.
func TestACreateRefusedForAnObjectThatIsGoneIsRetried(t *testing.T) {
	f, s := newServer(t)
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "probe", nil))
	refused, refusals := 0, 2
	f.refuse = func(r *http.Request) (int, string) {
		if r.Method != http.MethodPut || refused == refusals {
			return 0, ""
		}
		refused++
		return http.StatusPreconditionFailed, "PreconditionFailed"
	}
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "d/k", []byte("v")))
	require.Equal(t, 2, refused)
	got, _ := f.objectContent("d/k")
	require.Equal(t, "v", got)
	refusals = -1
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "d/other", []byte("v")), objectstore.ErrExists)
	require.Equal(t, 2+attempts, refused)
}

// TestServersWithoutConditions stay usable by one cluster.
func TestServersWithoutConditions(t *testing.T) {
	for name, set := range map[string]func(*server){
		"ignores them": func(f *server) { f.ignoreConditions = true },
		"refuses them": func(f *server) { f.refuseConditions = true },
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newServer(t)
			set(f)
			ok, err := s.Honoured(t.Context())
			require.NoError(t, err)
			require.False(t, ok)
			require.NoError(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("first")))
			require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("second")), objectstore.ErrExists)
			got, _ := f.objectContent("k")
			require.Equal(t, "first", got)
			src, want := largeSources(t, s)
			_, err = s.Compose(t.Context(), "whole", src)
			require.NoError(t, err)
			got, _ = f.objectContent("whole")
			require.True(t, want == got)
			_, err = s.Compose(t.Context(), "whole", src)
			require.ErrorIs(t, err, objectstore.ErrExists)
		})
	}
}

// TestLostAnswers repeats a request whose answer never came: the object in its way is its own.
func TestLostAnswers(t *testing.T) {
	f, s := newServer(t)
	_, err := s.Honoured(t.Context())
	require.NoError(t, err)
	lost := map[string]bool{}
	f.lose = func(r *http.Request) bool {
		id := r.Method + " " + requestKind(r)
		first := r.Method != http.MethodHead && r.Method != http.MethodGet && !lost[id]
		lost[id] = true
		return first
	}
	require.NoError(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("mine")))
	require.True(t, lost["PUT object"])
	require.ErrorIs(t, objectstore.CreateBytes(t.Context(), s, "k", []byte("other")), objectstore.ErrExists)
	got, _ := f.objectContent("k")
	require.Equal(t, "mine", got)

	src, want := largeSources(t, s)
	_, err = s.Compose(t.Context(), "whole", src)
	require.NoError(t, err)
	require.True(t, lost["POST upload"])
	got, _ = f.objectContent("whole")
	require.True(t, want == got)
}

func TestServersWithoutCopyAreStreamedThrough(t *testing.T) {
	f, s := newServer(t)
	f.noCopy = true
	src, want := largeSources(t, s)
	_, err := s.Compose(t.Context(), "whole", src)
	require.NoError(t, err)
	got, _ := f.objectContent("whole")
	require.True(t, want == got)
	tried := f.countRequests("PUT copy")
	require.Positive(t, tried)
	_, err = s.Compose(t.Context(), "again", src)
	require.NoError(t, err)
	require.Equal(t, tried, f.countRequests("PUT copy"), "asked once")
}

// TestAFailedComposeLeavesNothing also on the server.
func TestAFailedComposeLeavesNothing(t *testing.T) {
	f, s := newServer(t)
	src, _ := largeSources(t, s)
	f.refuse = func(r *http.Request) (int, string) {
		if requestKind(r) == "copy" {
			return http.StatusForbidden, "AccessDenied"
		}
		return 0, ""
	}
	_, err := s.Compose(t.Context(), "whole", src)
	require.ErrorIs(t, err, objectstore.ErrAccess)
	_, there := f.objectContent("whole")
	require.False(t, there)
	require.Empty(t, f.uploads)
	f.refuse = nil
	src[1].Key = "gone"
	_, err = s.Compose(t.Context(), "whole", src)
	require.ErrorIs(t, err, objectstore.ErrNotFound)
	require.ErrorContains(t, err, "gone")
	require.Empty(t, f.uploads)
}

// TestANotFoundOfSomethingElseIsNoNotFound: a delete must not look done when the bucket or the user
// is unknown.
func TestANotFoundOfSomethingElseIsNoNotFound(t *testing.T) {
	f, s := newServer(t)
	f.refuse = func(*http.Request) (int, string) { return http.StatusNotFound, "NoSuchBucket" }
	require.ErrorIs(t, s.Delete(t.Context(), "k"), objectstore.ErrNoBucket)
	f.refuse = func(*http.Request) (int, string) { return http.StatusNotFound, "NoSuchTenant" }
	err := s.Delete(t.Context(), "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, objectstore.ErrNotFound)
}

func TestServerErrorsAreRetried(t *testing.T) {
	f, s := newServer(t)
	left := 2
	f.refuse = func(*http.Request) (int, string) {
		if left--; left >= 0 {
			return http.StatusServiceUnavailable, "SlowDown"
		}
		return 0, ""
	}
	require.NoError(t, objectstore.PutBytes(t.Context(), s, "k", []byte("v")))
	got, _ := f.objectContent("k")
	require.Equal(t, "v", got)
}

func TestErrorsHoldNoSecrets(t *testing.T) {
	f, s := newServer(t)
	f.refuse = func(*http.Request) (int, string) { return http.StatusForbidden, "SignatureDoesNotMatch" }
	err := s.Put(t.Context(), "k", strings.NewReader("v"), 1)
	require.ErrorIs(t, err, objectstore.ErrAccess)
	require.NotContains(t, err.Error(), "secret")
}

// TestAnUploadThatEndsMeanwhileIsNoError: its writer lived, or another sweep was first.
func TestAnUploadThatEndsMeanwhileIsNoError(t *testing.T) {
	f, s := newServer(t)
	f.uploads["lives"] = &upload{key: "a/b"}
	f.uploads["other"] = &upload{key: "c"}
	f.refuse = func(r *http.Request) (int, string) {
		if r.Method == http.MethodDelete {
			return http.StatusNotFound, "NoSuchUpload"
		}
		return 0, ""
	}
	n, err := objectstore.SweepUploads(t.Context(), s, "a/", func(u objectstore.Upload) (bool, error) {
		require.Equal(t, "a/b", u.Key)
		require.Equal(t, 2026, u.Begun.Year())
		return true, nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestSweepingUploadsNeedsAPermission that a bucket used for years need not have given.
func TestSweepingUploadsNeedsAPermission(t *testing.T) {
	f, s := newServer(t)
	f.uploads["u"] = &upload{key: "a"}
	for _, refused := range []string{http.MethodGet, http.MethodDelete} {
		f.refuse = func(r *http.Request) (int, string) {
			if r.Method == refused {
				return http.StatusForbidden, "AccessDenied"
			}
			return 0, ""
		}
		n, err := objectstore.SweepUploads(t.Context(), s, "", func(objectstore.Upload) (bool, error) { return true, nil })
		require.ErrorIs(t, err, objectstore.ErrAccess)
		require.Zero(t, n)
	}
}
