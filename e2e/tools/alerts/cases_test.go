package alerts_test

// firing are series, and the labels of the alerts that fire at the end of them.
type firing struct {
	series string
	labels []string
}

// scenarios of an alert, by what happens in them.
type scenarios struct {
	fires  map[string]firing
	silent map[string]string
}

// counter are the scenarios of an alert about events: a series that exists at zero, and one event.
func counter(series, labels string) scenarios {
	return scenarios{
		fires: map[string]firing{
			"one event":                   {series + " 0x20 1x10", []string{labels}},
			"one after a restart":         {series + " 5x20 0x5 1x10", []string{labels}},
			"an event of the last hour":   {series + " 0x5 1x55", []string{labels}},
			"an event in one of two pods": {series + " 0x20 1x10\n" + other(series) + " 0x30", []string{labels}},
		},
		silent: map[string]string{
			"no event":           series + " 0x60",
			"events long ago":    series + " 3x120",
			"an hour afterwards": series + " 0x5 1x70",
			"a restart":          series + " 5x20 0x20",
		},
	}
}

// other is the series of another process.
func other(series string) string { return series[:len(series)-1] + `,pod="other"}` }

// alike adds scenarios in which another metric has the events.
func (s scenarios) alike(kind string, more scenarios) scenarios {
	for name, f := range more.fires {
		s.fires[kind+": "+name] = f
	}
	return s
}

// either are the scenarios of an alert about two metrics: each has the events, with the other at
// zero, and with the other absent, as where a schedule of another cluster has had one kind alone.
func either(a, b, labels string) scenarios {
	return counter(a, labels).beside(b).alike("the other metric", counter(b, labels).beside(a)).
		alike("alone", counter(a, labels)).alike("the other metric alone", counter(b, labels))
}

// formatRepository has the series of a repository: when it was maintained, and how often it is.
func formatRepository(maintained, interval string) string {
	return `holdfast_repository_maintained_timestamp_seconds{namespace="velero",repository_name="r"} ` + maintained + "\n" +
		`holdfast_repository_maintenance_interval_seconds{namespace="velero",repository_name="r"} ` + interval
}

var cases = map[string]scenarios{
	"HoldfastRepositoryNotMaintained": {
		fires: map[string]firing{
			"not for two days":        {formatRepository("-176400x20", "3600x20"), []string{`{namespace="velero", repository_name="r"}`}},
			"a week's run is overdue": {formatRepository("-777600x20", "604800x20"), []string{`{namespace="velero", repository_name="r"}`}},
		},
		silent: map[string]string{
			"the day before":          formatRepository("-86400x20", "3600x20"),
			"a week's run is not due": formatRepository("-604800x20", "604800x20"),
			"by another process": formatRepository("-176400x20", "3600x20") + "\n" +
				`holdfast_repository_maintained_timestamp_seconds{namespace="velero",repository_name="r",pod="other"} 0x20`,
		},
	},
	"HoldfastBackupDamaged": {
		fires: map[string]firing{
			"faults were found":      {`holdfast_backup_verification_faults{namespace="velero",schedule="s"} 0x20 3x10`, []string{`{namespace="velero", schedule="s"}`}},
			"the duty changes hands": {`holdfast_backup_verification_faults{namespace="velero",schedule="s"} 3x20 _x5`, []string{`{namespace="velero", schedule="s"}`}},
			"one of two schedules": {"holdfast_backup_verification_faults{namespace=\"velero\",schedule=\"s\"} 1x20\n" +
				`holdfast_backup_verification_faults{namespace="velero",schedule="t"} 0x20`, []string{`{namespace="velero", schedule="s"}`}},
		},
		silent: map[string]string{
			"backups are whole":       `holdfast_backup_verification_faults{namespace="velero",schedule="s"} 0x60`,
			"a later one is whole":    `holdfast_backup_verification_faults{namespace="velero",schedule="s"} 3x20 0x20`,
			"the schedule is no more": `holdfast_backup_verification_faults{namespace="velero",schedule="s"} 3x20 _x20`,
		},
	},
	"HoldfastNoGoodBackup": {
		fires: map[string]firing{
			// Hourly: after 1.5 h and 1 h, and 5 min.
			"the last good one is old": {`
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x160
holdfast_schedule_created_timestamp_seconds{namespace="velero",schedule="s"} 0x160
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x160`, []string{`{namespace="velero", schedule="s"}`}},
			"there was never one": {`
holdfast_schedule_created_timestamp_seconds{namespace="velero",schedule="s"} 0x160
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x160`, []string{`{namespace="velero", schedule="s"}`}},
			"one of two schedules": {`
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x160
velero_backup_last_successful_timestamp{namespace="velero",schedule="t"} 0x160
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x160
holdfast_schedule_interval_seconds{namespace="velero",schedule="t"} 86400x160`, []string{`{namespace="velero", schedule="s"}`}},
			"a schedule that was resumed six hours ago, and has none since": {`
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x560
holdfast_schedule_paused{namespace="velero",schedule="s"} 0x60 1x120 0x380
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x60 _x120 3600x380`, []string{`{namespace="velero", schedule="s"}`}},
			"one that skipped a backup, and made none at its next slot": {`
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x400
holdfast_schedule_paused{namespace="velero",schedule="s"} 0x400
holdfast_schedule_skipped_timestamp_seconds{namespace="velero",schedule="s"} 3600x400
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x400`, []string{`{namespace="velero", schedule="s"}`}},
			"another schedule is paused": {`
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x160
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x160
holdfast_schedule_paused{namespace="velero",schedule="s"} 0x160
holdfast_schedule_paused{namespace="velero",schedule="t"} 1x160
holdfast_schedule_skipped_timestamp_seconds{namespace="velero",schedule="t"} 9000x160`, []string{`{namespace="velero", schedule="s"}`}},
			"one of two releases": {`
velero_backup_last_successful_timestamp{namespace="a",schedule="s"} 0x160
velero_backup_last_successful_timestamp{namespace="b",schedule="s"} 0+60x160
holdfast_schedule_interval_seconds{namespace="a",schedule="s"} 3600x160
holdfast_schedule_interval_seconds{namespace="b",schedule="s"} 3600x160`, []string{`{namespace="a", schedule="s"}`}},
		},
		silent: map[string]string{
			"one slot was missed": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x150
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x150`,
			"good ones": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x60 3600x60 7200x60
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x180`,
			"a paused schedule": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x200
holdfast_schedule_created_timestamp_seconds{namespace="velero",schedule="s"} 0x200`,
			"by hand": `velero_backup_last_successful_timestamp{namespace="velero",schedule=""} 0x200`,
			// Paused for two hours, with the last good one three hours old when it is resumed.
			"a schedule that was resumed": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x480
holdfast_schedule_paused{namespace="velero",schedule="s"} 0x60 1x120 0x300
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x60 _x120 3600x300`,
			// At minute 420 six hours have passed and the good one of minute 185 is not old.
			"a schedule that was resumed and has a good one": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x185 11100x179 21900x175
holdfast_schedule_paused{namespace="velero",schedule="s"} 0x60 1x120 0x360
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 3600x60 _x120 3600x360`,
			// Resumed at minute 600 with skipImmediately; daily, so the next slot is up to a day later.
			"a schedule that was resumed without a backup": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} -300000x1000
holdfast_schedule_paused{namespace="velero",schedule="s"} 1x600 0x400
holdfast_schedule_skipped_timestamp_seconds{namespace="velero",schedule="s"} _x601 36000x399
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} _x600 86400x400`,
			"a good one that is older than the schedule, of a weekly one": `
velero_backup_last_successful_timestamp{namespace="velero",schedule="s"} 0x200
holdfast_schedule_interval_seconds{namespace="velero",schedule="s"} 604800x200`,
		},
	},
	"HoldfastBackupFailed": either(`velero_backup_failure_total{namespace="velero",schedule="s"}`,
		`velero_backup_validation_failure_total{namespace="velero",schedule="s"}`, `{namespace="velero", schedule="s"}`),
	"HoldfastBackupPartiallyFailed": counter(`velero_backup_partial_failure_total{namespace="velero",schedule=""}`, `{namespace="velero", schedule=""}`).named(`{namespace="velero"}`),
	"HoldfastRestoreFailed": either(`velero_restore_failed_total{namespace="velero",schedule="s"}`,
		`velero_restore_partial_failure_total{namespace="velero",schedule="s"}`, `{namespace="velero", schedule="s"}`),
	"HoldfastDeletionFailed":   counter(`velero_backup_deletion_failure_total{namespace="velero",schedule="s"}`, `{namespace="velero", schedule="s"}`),
	"HoldfastOperationStalled": counter(`holdfast_operation_stalls_total{namespace="velero"}`, `{namespace="velero"}`),
	"HoldfastDeadLetter":       counter(`holdfast_dead_letters_total{namespace="velero",work="backup.run"}`, `{namespace="velero", work="backup.run"}`),
	"HoldfastQueueAge": {
		fires: map[string]firing{"a backup waits": {`
holdfast_queue_oldest_seconds{namespace="velero",kind="Backup"} 7000+60x10
holdfast_queue_oldest_seconds{namespace="velero",kind="Restore"} 0x10`, []string{`{kind="Backup", namespace="velero"}`}}},
		silent: map[string]string{
			"not for long enough": `holdfast_queue_oldest_seconds{namespace="velero",kind="Backup"} 6000+60x10`,
			"it began in between": `holdfast_queue_oldest_seconds{namespace="velero",kind="Backup"} 7300+60x4 0x2 7300+60x3`,
			"nothing waits":       `holdfast_queue_oldest_seconds{namespace="velero",kind="Backup"} 0x10`,
		},
	},
	"HoldfastLocationUnavailable": {
		fires: map[string]firing{"one of two": {`
velero_backup_location_status_gauge{namespace="velero",backup_location_name="a"} 1x5 0x12
velero_backup_location_status_gauge{namespace="velero",backup_location_name="b"} 1x17`, []string{`{backup_location_name="a", namespace="velero"}`}}},
		silent: map[string]string{
			"for a moment": `velero_backup_location_status_gauge{namespace="velero",backup_location_name="a"} 1x5 0x8 1x5`,
			"not for long": `velero_backup_location_status_gauge{namespace="velero",backup_location_name="a"} 1x15 0x5`,
			"available":    `velero_backup_location_status_gauge{namespace="velero",backup_location_name="a"} 1x30`,
		},
	},
	"HoldfastNotReporting": {
		fires: map[string]firing{"no service": {`up{job="other"} 1x30`, []string{"{}"}},
			"it went away": {"holdfast_queue_depth{namespace=\"velero\"} 3x10 _x25", []string{"{}"}},
			"Velero beside it has metrics of the same names": {"velero_backup_total{namespace=\"other\"} 3x30", []string{"{}"}}},
		silent: map[string]string{
			"it reports":             `holdfast_queue_depth{namespace="velero"} 0x30`,
			"the duty changes hands": `holdfast_queue_depth{namespace="velero"} 3x10 _x10 3x5`,
		},
	},
}

// beside adds a series at zero to each scenario.
func (s scenarios) beside(series string) scenarios {
	for name, f := range s.fires {
		f.series += "\n" + series + " 0x200"
		s.fires[name] = f
	}
	for name, text := range s.silent {
		s.silent[name] = text + "\n" + series + " 0x200"
	}
	return s
}

// named replaces the labels of the alerts that fire: Prometheus leaves empty ones out.
func (s scenarios) named(labels string) scenarios {
	for name, f := range s.fires {
		f.labels = []string{labels}
		s.fires[name] = f
	}
	return s
}
