package doctor

// Status is what a finding means.
type Status string

// The statuses. Only Failed makes the command fail.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failed  Status = "failed"
	// Skipped is what could not be, or was not to be, checked.
	Skipped Status = "skipped"
)

// Finding is one thing that was checked.
type Finding struct {
	// Check is the name of the check it is part of.
	Check string `json:"check"`
	// Subject is what it is about, such as a service or a location; empty where the check has one
	// subject.
	Subject string `json:"subject,omitempty"`
	Status  Status `json:"status"`
	Message string `json:"message"`
	// Remedy is what to do about it; every warning and every failure has one.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what all checks found.
type Report struct {
	// Version is that of the program that checked.
	Version   string    `json:"version"`
	Namespace string    `json:"namespace"`
	Findings  []Finding `json:"findings"`
}

// Count returns how many findings have a status.
func (r Report) Count(s Status) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Status == s {
			n++
		}
	}
	return n
}

// checkNotes collects what one check finds.
type checkNotes struct {
	check    string
	findings []Finding
}

func (n *checkNotes) addFinding(s Status, subject, message, remedy string) {
	n.findings = append(n.findings, Finding{Check: n.check, Subject: subject, Status: s, Message: message, Remedy: remedy})
}

func (n *checkNotes) addOK(subject, message string) { n.addFinding(OK, subject, message, "") }

func (n *checkNotes) addWarning(subject, message, remedy string) {
	n.addFinding(Warning, subject, message, remedy)
}

func (n *checkNotes) addFailure(subject, message, remedy string) {
	n.addFinding(Failed, subject, message, remedy)
}

func (n *checkNotes) addSkipped(subject, message, remedy string) {
	n.addFinding(Skipped, subject, message, remedy)
}
