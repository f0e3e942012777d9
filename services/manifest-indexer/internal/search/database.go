// Package search has the index of what all backups hold: a SQLite database in the work directory of one
// replica, which is a cache. It is built from the bucket, and again where it is lost or damaged.
//
// An object has one row for each content that consecutive backups of one scope found it with, not one for
// each backup: the row has the range of these backups.
package search

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// ErrDamaged means that the file of the database is gone, or is not what was written to it.
var ErrDamaged = errors.New("the database is damaged")

// ErrFull means that the file has its largest size, or the disk has no room, and that nothing was written.
var ErrFull = errors.New("the search index has no room")

const (
	// maxPages bounds the file, in pages of 4 KiB: 1 GiB, half of the work directory in the chart.
	maxPages = 1 << 18
	// maxConns is how many statements run at once, cacheKiB what each may keep of the file in memory.
	maxConns = 4
	cacheKiB = 4096
	// openEnd is the last backup of a range that goes on with the next backup.
	openEnd = 1<<62 - 1
)

// tables are the kinds and objects that were seen, the label sets they had with an index of their lines,
// lineages (the backups of one location and scope), and the versions of objects. Backups of a lineage are
// numbered as they are added; a version is in those from first to last that are there. What else is known of
// backups is in memory. A page has the names of the objects from its own place to that of the next one, so that
// a text in names is found without looking at each object. staged has the backup that is being added.
const tables = `
CREATE TABLE kind (id INTEGER PRIMARY KEY, grp TEXT, name TEXT, version TEXT, resource TEXT, UNIQUE (grp, name));
CREATE TABLE tag (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
CREATE TABLE label (line TEXT, tag INTEGER, PRIMARY KEY (line, tag)) WITHOUT ROWID;
CREATE TABLE object (kind INTEGER, namespace TEXT, name TEXT, id INTEGER, PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE page (kind INTEGER, namespace TEXT, name TEXT, body BLOB, PRIMARY KEY (kind, namespace, name)) WITHOUT ROWID;
CREATE TABLE lineage (id INTEGER PRIMARY KEY, scope TEXT UNIQUE);
CREATE TABLE backup (seq INTEGER PRIMARY KEY AUTOINCREMENT, lineage INTEGER);
CREATE TABLE version (object INTEGER, lineage INTEGER, first INTEGER, last INTEGER, hash BLOB, tag INTEGER, PRIMARY KEY (object, lineage, first)) WITHOUT ROWID;
CREATE INDEX version_last ON version (lineage, last);
CREATE TABLE staged (object INTEGER PRIMARY KEY, hash BLOB, tag INTEGER);
`

// Backup is a backup that is indexed.
type Backup struct {
	UID, Name, Location, Schedule string
	Start                         time.Time
	// NamesOnly: neither contents nor labels of its objects are known.
	NamesOnly bool
	// Scope is what the backup selects, as text: backups of one scope are likely to hold the same objects.
	Scope string

	seq, lineage int64
}

// Database is the index. It is safe for concurrent use; backups are added and removed by one caller.
type Database struct {
	path     string
	paging   paging
	maxPages int

	mu      sync.RWMutex // held for reading while the file is used, for writing while it is replaced
	db      *sql.DB
	file    fs.FileInfo // of the file that was opened
	damaged atomic.Bool // until the file is replaced
	list    sync.Mutex  // of backups
	backups []Backup    // in the order of seq; the slice is replaced, never written to
	objects int64       // the largest id
}

// OpenDatabase makes an empty database at a path, in place of any other one.
func OpenDatabase(ctx context.Context, path string) (*Database, error) {
	d := &Database{path: path, paging: defaultPaging, maxPages: maxPages}
	return d, d.createFile(ctx)
}

// createFile makes the file. What is written need not outlive the process: it is never forced to the disk.
func (d *Database) createFile(ctx context.Context) error {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if err := os.Remove(d.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("search index: %w", err)
		}
	}
	options := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(OFF)", "temp_store(MEMORY)", "busy_timeout(60000)", fmt.Sprintf("cache_size(-%d)", cacheKiB), "journal_size_limit(16777216)", fmt.Sprintf("max_page_count(%d)", d.maxPages)}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: d.path}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return fmt.Errorf("search index: %w", err)
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	d.db = db
	d.setBackups(nil)
	d.objects = 0
	d.damaged.Store(false)
	if _, err := db.ExecContext(ctx, tables); err != nil {
		return fmt.Errorf("search index: %w", err)
	}
	d.file, err = os.Stat(d.path)
	return err
}

// Close closes the file.
func (d *Database) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.db.Close()
}

// Reset replaces the database with an empty one.
func (d *Database) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.db.Close() // it is thrown away
	return d.createFile(ctx)
}

// Backups returns the backups that are indexed, in the order they were added. The slice must not be modified.
func (d *Database) Backups() []Backup {
	d.list.Lock()
	defer d.list.Unlock()
	return d.backups
}

func (d *Database) setBackups(backups []Backup) {
	d.list.Lock()
	defer d.list.Unlock()
	d.backups = backups
}

// withFile runs what reads or writes the file. Errors of a lost or damaged file are ErrDamaged, of one without room ErrFull.
func (d *Database) withFile(do func() error) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if now, err := os.Stat(d.path); err != nil || !os.SameFile(now, d.file) || d.damaged.Load() {
		return fmt.Errorf("%w: %s is not what was written", ErrDamaged, d.path)
	}
	err := do()
	failure := new(sqlite.Error)
	if errors.As(err, &failure) {
		switch failure.Code() & 0xff { // the rest of the code says more about it
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
			d.damaged.Store(true)
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		case sqlite3.SQLITE_FULL:
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	return err
}
