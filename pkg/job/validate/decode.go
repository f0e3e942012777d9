package validate

import (
	gojson "encoding/json"
	"errors"
	"maps"
	"regexp"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/json"

	"github.com/holdfast-io/holdfast/pkg/errgrpc"
)

// quoted finds the field in the messages of the strict decoder: unknown field "a.b".
var quoted = regexp.MustCompile(`^(\w+ field) "([^"]+)"`)

// DecodeSpec reads a spec strictly: every unknown, repeated or mistyped field is an error that
// names it.
func DecodeSpec[S any](in *structpb.Struct, into *S) error {
	if in == nil {
		return nil
	}
	data, err := protojson.Marshal(in)
	if err != nil {
		return errgrpc.Field("spec", "%v", err)
	}
	strict, err := json.UnmarshalStrict(data, into)
	if err != nil {
		return mistypedError[S](in, err)
	}
	errs := make([]error, 0, len(strict))
	for _, e := range strict {
		if m := quoted.FindStringSubmatch(e.Error()); m != nil {
			errs = append(errs, errgrpc.Field("spec."+m[2], "%s", m[1]))
			continue
		}
		errs = append(errs, errgrpc.Field("spec", "%v", e))
	}
	return errors.Join(errs...)
}

// mistypedError returns which field has a value that cannot be read. Types that decode themselves, such
// as durations, do not name it: then the fields are tried one by one.
func mistypedError[S any](in *structpb.Struct, err error) error {
	var wrong *gojson.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return errgrpc.Field("spec."+wrong.Field, "must not be a %s", wrong.Value)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(in.GetFields())) {
		data, err := protojson.Marshal(&structpb.Struct{Fields: map[string]*structpb.Value{name: in.GetFields()[name]}})
		if err == nil {
			_, err = json.UnmarshalStrict(data, new(S))
		}
		if err != nil {
			errs = append(errs, errgrpc.Field("spec."+name, "%v", err))
		}
	}
	if len(errs) == 0 {
		return errgrpc.Field("spec", "%v", err)
	}
	return errors.Join(errs...)
}
