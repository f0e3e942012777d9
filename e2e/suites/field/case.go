package field

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	velerov1 "github.com/holdfast-io/holdfast/pkg/apis/velero/v1"
)

// reportCase is a case.yaml: one public report.
type reportCase struct {
	Reports   []string          `json:"reports"`
	Velero    string            `json:"velero"`
	Holdfast  string            `json:"holdfast"`
	Reason    string            `json:"reason"`    // why the case stays wrong
	Pending   string            `json:"pending"`   // the fault that is to be mended
	Exclusive bool              `json:"exclusive"` // no other case runs meanwhile
	Long      bool              `json:"long"`      // waits for more than ten seconds, or has the movers of another case
	Movers    bool              `json:"movers"`    // data of volumes is stored, in S3
	Steps     []json.RawMessage `json:"steps"`

	name   string // of the directory
	prefix string // of the names of everything that the case makes
}

// caseStep is one step. One field is set.
type caseStep struct {
	Create  []object         `json:"create"`
	Patch   []object         `json:"patch"`
	Status  []object         `json:"status"`
	Apply   *serverSideApply `json:"apply"`
	Run     []string         `json:"run"`
	Write   *volumeFiles     `json:"write"`
	Delete  []string         `json:"delete"`
	Destroy []string         `json:"destroy"`
	Save    map[string]value `json:"save"`
	Backup  *jobStep         `json:"backup"`
	Restore *jobStep         `json:"restore"`
	Await   *jobStep         `json:"await"`
	Expect  []expectation    `json:"expect"`
	Restart string           `json:"restart"`
	Command *commandStep     `json:"command"`
}

// commandStep runs the command-line tool.
type commandStep struct {
	Holdfast []string `json:"holdfast"` // the arguments
	Code     int      `json:"code"`     // it ends with
	Says     []string `json:"says"`     // on either stream
}

// volumeFiles are files in a volume of a Pod that runs.
type volumeFiles struct {
	Pod    string            `json:"pod"` // namespace/name
	Volume string            `json:"volume"`
	Files  map[string]string `json:"files"` // content by name
}

type object = map[string]any

type serverSideApply struct {
	Manager string   `json:"manager"`
	Objects []object `json:"objects"`
}

// value is a field of an object: the first that the selector takes, where there is one.
type value struct {
	Object   string `json:"object"`
	Selector string `json:"selector"`
	Path     string `json:"path"`
}

// jobStep submits a Backup or Restore and waits for its end, or, as await, waits alone.
type jobStep struct {
	Name     string          `json:"name"`
	Spec     json.RawMessage `json:"spec"`
	Metadata object          `json:"metadata"`
	Wait     *bool           `json:"wait"`
	Again    *jobResult      `json:"again"`

	Backup  string `json:"backup"`  // await: which
	Restore string `json:"restore"` // await: which
	jobResult
}

// jobResult is how a Backup or Restore ends. Each warning and error is a part of exactly one of the
// result's, and the result has no others.
type jobResult struct {
	Phase      string   `json:"phase"`
	Warnings   []string `json:"warnings"`
	Errors     []string `json:"errors"`
	Validation []string `json:"validation"`
	Log        []string `json:"log"`
	Skip       string   `json:"skip"` // again: why the restore is not repeated
}

// expectedPhase is the phase that follows from what is listed.
func (r *jobResult) expectedPhase() string {
	switch {
	case r.Phase != "":
		return r.Phase
	case len(r.Validation) > 0:
		return string(velerov1.BackupPhaseFailedValidation)
	case len(r.Errors) > 0:
		return string(velerov1.BackupPhasePartiallyFailed)
	}
	return string(velerov1.BackupPhaseCompleted)
}

// expectation is one statement about the cluster.
type expectation struct {
	Object   string   `json:"object"`
	List     string   `json:"list"`
	Selector string   `json:"selector"`
	Path     string   `json:"path"`
	Is       *string  `json:"is"`
	Not      *string  `json:"not"`
	Matches  string   `json:"matches"`
	Absent   bool     `json:"absent"`
	Count    *int     `json:"count"`
	Before   string   `json:"before"` // objects of a list, of which each was written after each of the first
	User     string   `json:"user"`
	Can      string   `json:"can"`
	Allowed  bool     `json:"allowed"`
	Ran      []string `json:"ran"`
	Pod      string   `json:"pod"`
	File     string   `json:"file"` // in a volume of the Pod: "volume/name"
	Events   string   `json:"events"`
	Contains string   `json:"contains"`
	Stays    string   `json:"stays"`
}

// decodeStrictly refuses fields that do not exist, so that a misspelled expectation is no expectation that holds.
func decodeStrictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

var directoryName = regexp.MustCompile(`^([a-z0-9-]+?-[0-9]+)-[a-z0-9-]+$`)

// loadCases reads every case below a directory.
func loadCases(dir string) ([]*reportCase, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "case.yaml"))
	if err != nil {
		return nil, err
	}
	cases := make([]*reportCase, 0, len(files))
	var problems []error
	owners := map[string]string{}
	for _, file := range files {
		c, err := loadCase(file)
		if err == nil && owners[c.prefix] != "" {
			err = fmt.Errorf("has the number of %s", owners[c.prefix])
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
			continue
		}
		owners[c.prefix] = c.name
		cases = append(cases, c)
	}
	return cases, errors.Join(problems...)
}

func loadCase(file string) (*reportCase, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	c := &reportCase{name: filepath.Base(filepath.Dir(file))}
	if err := decodeStrictly(data, c); err != nil {
		return nil, err
	}
	match := directoryName.FindStringSubmatch(c.name)
	if match == nil {
		return nil, errors.New("its directory is not named <project>-<number>-<words>")
	}
	c.prefix = match[1]
	return c, c.validateCase()
}

// validateCase names what is missing, and steps that cannot be read.
func (c *reportCase) validateCase() error {
	number := c.prefix[strings.LastIndex(c.prefix, "-")+1:]
	switch {
	case len(c.Reports) == 0 || !strings.HasSuffix(c.Reports[0], "/"+number):
		return fmt.Errorf("the first of its reports is not number %s", number)
	case c.Velero == "" || c.Holdfast == "":
		return errors.New("velero or holdfast is empty")
	case len(c.Steps) == 0:
		return errors.New("has no steps")
	}
	for i, raw := range c.Steps {
		fields := map[string]json.RawMessage{}
		if err := json.Unmarshal(raw, &fields); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if len(fields) != 1 {
			return fmt.Errorf("step %d has %d keys instead of one", i+1, len(fields))
		}
		if err := decodeStrictly(raw, &caseStep{}); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}
