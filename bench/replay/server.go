package main

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

type server struct {
	templates                    *templates
	services, pods, replacements int

	mu      sync.Mutex
	session *session
}

// What one program under test sees, from its first request on.
type session struct {
	cluster *cluster
	script  *script
	// Protobuf for whoever asks for it; otherwise all get JSON.
	protobuf bool
	streams  [kinds]*stream
	// Once it has begun, objects are not listed any more: a client that lists again has lost its place.
	begun   bool
	version uint64
	// Held while the script is played: an answer must not end while it is being written.
	playing sync.Mutex
}

func (s *server) reset(offerProtobuf bool) {
	made := newCluster(s.templates, s.services, s.pods)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.session = &session{cluster: made, script: &script{cluster: made}, protobuf: offerProtobuf, version: listVersion}
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for k, resource := range resources {
		mux.HandleFunc("GET "+resource.path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, kind(k)) })
	}
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`)
	})
	mux.HandleFunc("POST /replay/reset", func(w http.ResponseWriter, r *http.Request) {
		s.reset(r.URL.Query().Get("protobuf") == "true")
		fmt.Fprintln(w, "{}")
	})
	mux.HandleFunc("POST /replay/play", s.play)
	return mux
}

func (s *server) serve(w http.ResponseWriter, r *http.Request, k kind) {
	query := r.URL.Query()
	accept := r.Header.Get("Accept")
	if resources[k].metadataOnly && !strings.Contains(accept, "as=PartialObjectMetadata") {
		http.Error(w, "only the metadata of "+resources[k].path+" are here", http.StatusNotAcceptable)
		return
	}
	if watch := query.Get("watch"); watch == "" || watch == "0" || watch == "false" {
		s.list(w, r, k)
		return
	}
	s.watch(w, r, k)
}

// Answers below this size are not compressed, and others at this level.
// Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/writers.go.
const (
	gzipFrom  = 128 * 1024
	gzipLevel = 1
)

// A page of a list, of JSON: what asks for protobuf streams its lists.
func (s *server) list(w http.ResponseWriter, r *http.Request, k kind) {
	s.mu.Lock()
	session := s.session
	version, begun := session.version, session.begun
	s.mu.Unlock()
	count := session.cluster.count(k)
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	if begun && limit != 1 {
		http.Error(w, "the stream has begun: nothing is listed any more", http.StatusInternalServerError)
		return
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	to := count
	if limit > 0 {
		to = min(from+limit, count)
	}
	page := fmt.Appendf(nil, `{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"%d"`,
		resources[k].kind, resources[k].apiVersion, version)
	if to < count {
		page = fmt.Appendf(page, `,"continue":"%d","remainingItemCount":%d`, to, count-to)
	}
	page = append(page, `},"items":[`...)
	for i := from; i < to; i++ {
		if i > from {
			page = append(page, ',')
		}
		page = session.cluster.object(k, i, listedVersion(i))(page, jsonText)
	}
	page = append(page, "]}\n"...)
	w.Header().Set("Content-Type", "application/json")
	if len(page) < gzipFrom || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Write(page)
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	compressor, _ := gzip.NewWriterLevel(w, gzipLevel)
	compressor.Write(page)
	compressor.Close()
}

func listedVersion(index int) string { return versionAt(1_000_000_000 + uint64(index)) }

func (s *server) watch(w http.ResponseWriter, r *http.Request, k kind) {
	s.mu.Lock()
	session := s.session
	expired := session.begun
	s.mu.Unlock()
	if expired {
		http.Error(w, "the stream has begun", http.StatusGone)
		return
	}
	enc := jsonText
	w.Header().Set("Content-Type", "application/json")
	if session.protobuf && strings.Contains(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
		enc = protobuf
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	}
	made := &stream{writer: w, resource: resources[k], encoding: enc, ended: r.Context().Done()}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for i := range session.cluster.count(k) {
			made.add("ADDED", session.cluster.object(k, i, listedVersion(i)))
		}
		made.add("BOOKMARK", bookmark(resources[k], true, listVersion))
	}
	made.flush()
	s.mu.Lock()
	session.streams[k] = made
	s.mu.Unlock()
	<-made.ended
	session.playing.Lock()
	session.playing.Unlock()
}

// Before what is measured, as many pods are replaced at a pace that every program keeps: there, none misses a lag.
const (
	trialReplacements = 100
	trialRate         = 500 // events a second
)

// Plays the script to whoever watches now, as fast as they read, and says who failed meanwhile.
func (s *server) play(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	session := s.session
	for k, stream := range session.streams {
		if stream == nil {
			s.mu.Unlock()
			http.Error(w, "nobody watches "+resources[k].path, http.StatusConflict)
			return
		}
	}
	session.begun = true
	session.playing.Lock()
	defer session.playing.Unlock()
	s.mu.Unlock()
	script := session.script
	if r.URL.Query().Get("trial") == "true" {
		began, sent := time.Now(), 0
		script.emit = func(k kind, eventType string, object render) {
			session.streams[k].add(eventType, object)
			session.flush()
			sent++
			time.Sleep(time.Until(began.Add(time.Duration(sent) * time.Second / trialRate)))
		}
		script.run(trialReplacements)
	} else {
		script.emit = func(k kind, eventType string, object render) {
			session.streams[k].add(eventType, object)
			if script.events%eventsPerFlush == 0 {
				session.flush()
			}
		}
		script.run(s.replacements)
	}
	s.mu.Lock()
	session.version = scriptVersion + script.version
	s.mu.Unlock()
	for k, stream := range session.streams {
		stream.add("BOOKMARK", bookmark(resources[k], false, session.version))
	}
	session.flush()
	json.NewEncoder(w).Encode(map[string]any{"failed": session.failed()})
}
