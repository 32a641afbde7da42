{{- /*
The objects of one training job. `holdfast kubernetes render` prints the same (controlplane/cli/kubernetes/job.py);
a test renders both and compares. Called with a dict: job (its name), v (its whole values), c (what it takes of
the release: cluster, image, imagePullPolicy, imagePullSecrets, coordinators, successPolicy, tls).
*/ -}}

{{- /* A job's secrets with certificates: of its agents, of whoever submits it; empty: plaintext. */ -}}
{{- define "holdfast.job.agentSecret" -}}
{{- if ne .c.tls.from "insecure" -}}
{{- .v.tls.agentSecret | default .c.tls.agentSecret | default (printf "%s-agent-tls" .job) -}}
{{- end -}}
{{- end -}}
{{- define "holdfast.job.submitSecret" -}}
{{- if ne .c.tls.from "insecure" -}}
{{- .v.tls.submitSecret | default .c.tls.submitSecret | default (printf "%s-submit-tls" .job) -}}
{{- end -}}
{{- end -}}

{{- /* Of whom a job's agents speak: nodes that stay serve every job. */ -}}
{{- define "holdfast.job.of" -}}
{{- if ne .v.kind "StatefulSet" }}?job={{ .job }}{{ end -}}
{{- end -}}

{{- define "holdfast.job.tlsVolume" -}}
{{- if and .c.tls.csiDriver (not .v.tls.agentSecret) }}
- name: tls
  csi:
    driver: csi.cert-manager.io
    readOnly: true
    volumeAttributes:
      csi.cert-manager.io/issuer-name: {{ .c.tls.issuer.name }}
      csi.cert-manager.io/issuer-kind: {{ .c.tls.issuer.kind }}
      csi.cert-manager.io/issuer-group: {{ .c.tls.issuer.group }}
      csi.cert-manager.io/duration: {{ .c.tls.hours }}h
      csi.cert-manager.io/key-usages: server auth,client auth
      csi.cert-manager.io/dns-names: {{ .c.tls.peerName }}
      csi.cert-manager.io/uri-sans: holdfast://{{ .c.cluster }}/agent/${POD_NAME}{{ include "holdfast.job.of" . }}
      csi.cert-manager.io/fs-group: {{ int64 (include "holdfast.job.podSecurity" . | fromYaml).fsGroup | quote }}
{{- else if include "holdfast.job.agentSecret" . }}
- name: tls
  secret:
    secretName: {{ include "holdfast.job.agentSecret" . }}
    defaultMode: 0440
{{- end }}
{{- end -}}

{{- /* Certificates that cert-manager makes for a job whose secrets nobody has named. */ -}}
{{- define "holdfast.job.certificates" -}}
{{- if eq .c.tls.from "certManager" }}
{{- if not (or .c.tls.csiDriver .v.tls.agentSecret) }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .job }}-agent
  labels: {{- include "holdfast.job.labels" (dict "component" "trainer" "job" .job "c" .c) | nindent 4 }}
spec:
  secretName: {{ include "holdfast.job.agentSecret" . }}
  duration: {{ .c.tls.hours }}h0m0s
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  usages: [server auth, client auth]
  dnsNames: [{{ .c.tls.peerName }}]
  uris: ["holdfast://{{ .c.cluster }}/agent/{{ .job }}-nodes-*{{ include "holdfast.job.of" . }}"]
  issuerRef: {{- toYaml .c.tls.issuer | nindent 4 }}
{{- end }}
{{- if not .v.tls.submitSecret }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ .job }}-submit
  labels: {{- include "holdfast.job.labels" (dict "component" "submit" "job" .job "c" .c) | nindent 4 }}
spec:
  secretName: {{ include "holdfast.job.submitSecret" . }}
  duration: {{ .c.tls.hours }}h0m0s
  privateKey: {algorithm: ECDSA, size: 256, rotationPolicy: Always}
  usages: [client auth]
  uris: ["holdfast://{{ .c.cluster }}/operator/{{ .job }}-submit?job={{ .job }}"]
  issuerRef: {{- toYaml .c.tls.issuer | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "holdfast.job.selector" -}}
app.kubernetes.io/name: holdfast
app.kubernetes.io/component: {{ .component }}
holdfast.dev/job: {{ .job }}
{{- end -}}

{{- define "holdfast.job.labels" -}}
{{ include "holdfast.job.selector" . }}
app.kubernetes.io/instance: {{ .c.instance }}
app.kubernetes.io/managed-by: {{ .c.managedBy }}
{{- end -}}

{{- /* Metadata of what makes pods; its component, and whether a queue of Kueue starts it. */ -}}
{{- define "holdfast.job.owner" -}}
labels: {{- include "holdfast.job.labels" (dict "component" .component "job" .job "c" .c) | nindent 2 }}
  {{- with .v.labels }}{{ toYaml . | nindent 2 }}{{ end }}
  {{- if and .v.queue (eq .component "trainer") }}
  kueue.x-k8s.io/queue-name: {{ .v.queue | quote }}
  {{- end }}
{{- with .v.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "holdfast.job.ttl" -}}
{{- with int64 .v.ttlSecondsAfterFinished }}
ttlSecondsAfterFinished: {{ . }}
{{- end }}
{{- end -}}

{{- define "holdfast.job.suspend" -}}
{{- if .v.queue }}
suspend: true
{{- end }}
{{- end -}}

{{- define "holdfast.job.podSecurity" -}}
{{- include "holdfast.over" (dict "ours" (include "holdfast.job.podSecurity.ours" .) "own" .v.podSecurityContext) -}}
{{- end -}}

{{- define "holdfast.job.trainerSecurity" -}}
{{- $found := include "holdfast.locked" . | fromYaml -}}
{{- $_ := set $found "readOnlyRootFilesystem" .v.readOnlyRootFilesystem -}}
{{- with .v.capabilities }}{{ $_ := set $found.capabilities "add" . }}{{ end -}}
{{- include "holdfast.over" (dict "ours" (toYaml $found) "own" .v.securityContext) -}}
{{- end -}}

{{- define "holdfast.job.podSecurity.ours" -}}
runAsNonRoot: true
runAsUser: {{ int64 .v.runAsUser }}
runAsGroup: {{ int64 .v.runAsUser }}
fsGroup: {{ int64 .v.runAsUser }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "holdfast.job.coordinators" -}}
{{- if .v.coordinators }}{{ join "," .v.coordinators }}{{ else }}{{ .c.coordinators }}{{ end -}}
{{- end -}}

{{- /* Namespaces in whose services a job's coordinators are, as *.NAMESPACE.svc says. */ -}}
{{- define "holdfast.job.coordinatorNamespaces" -}}
{{- $found := list -}}
{{- range splitList "," (include "holdfast.job.coordinators" .) -}}
{{- $found = append $found (regexFind "[^.]+\\.svc[.:]" . | splitList "." | first) -}}
{{- end -}}
{{- $found | uniq | compact | join "," -}}
{{- end -}}

{{- define "holdfast.job.credentials" -}}
{{- with .v.storage.secretName }}
envFrom:
  - secretRef:
      name: {{ . }}
{{- end }}
{{- end -}}

{{- define "holdfast.job.checkpointMount" -}}
{{- if .v.storage.pvc.claimName }}
- name: checkpoints
  mountPath: {{ .v.storage.pvc.mountPath }}
{{- end }}
{{- end -}}

{{- define "holdfast.job.pod" -}}
metadata:
  labels: {{- include "holdfast.job.labels" (dict "component" "trainer" "job" .job "c" .c) | nindent 4 }}
    {{- with .v.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations: {{- toYaml (merge (deepCopy .v.podAnnotations) (dict "kubectl.kubernetes.io/default-container" "agent")) | nindent 4 }}
spec:
  restartPolicy: {{ .restart }}
  shareProcessNamespace: true
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: {{ .v.terminationGracePeriodSeconds }}
  securityContext: {{- include "holdfast.job.podSecurity" . | nindent 4 }}
  {{- with .v.serviceAccountName }}
  serviceAccountName: {{ . }}
  {{- end }}
  {{- with .v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .v.schedulerName }}
  schedulerName: {{ . }}
  {{- end }}
  {{- if .v.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with .v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .v.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .c.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  initContainers:
    # The launcher and the SDK, for an image that has neither.
    - name: launcher
      image: {{ .c.image }}
      imagePullPolicy: {{ .c.imagePullPolicy }}
      args: [exec, --copy-to=/holdfast]
      securityContext: {{- include "holdfast.locked" . | nindent 8 }}
      resources:
        requests: {cpu: 100m, memory: 64Mi}
        limits: {memory: 256Mi}
      volumeMounts:
        - name: launcher
          mountPath: /holdfast
    # A native sidecar: there before the trainer, ended after it, restarted beside it.
    - name: agent
      image: {{ .c.image }}
      imagePullPolicy: {{ .c.imagePullPolicy }}
      restartPolicy: Always
      args:
        - agent
        - --cluster={{ .c.cluster }}
        - --coordinator={{ include "holdfast.job.coordinators" . }}
        - --node=$(POD_NAME)
        - --address=$(POD_IP)
        - --slots={{ .v.ranksPerNode }}
        - --run-dir=/hf
        - --shm-dir=/hf-shm
        - --metrics=0.0.0.0:{{ .v.agent.metricsPort }}
        - --no-own-launcher
        - --drain-grace-s={{ sub (int .v.terminationGracePeriodSeconds) 15 }}
        {{- if include "holdfast.job.agentSecret" . }}
        {{- include "holdfast.tls.flags" "/etc/holdfast/tls" | nindent 8 }}
        - --tls-peer-name={{ .c.tls.peerName }}
        {{- if .c.tls.denyMap }}
        - --deny-list=/etc/holdfast/denied/{{ .c.tls.denyKey }}
        {{- end }}
        {{- else }}
        - --insecure
        {{- end }}
        {{- if .v.domainIsHost }}
        - --domain=$(HOST_NAME)
        {{- end }}
        {{- if eq .restart "Never" }}
        - --jobs={{ .job }}
        {{- if and .v.storage.url (not (hasKey .v.agent.settings "storage_allowed")) }}
        - {{ printf "--storage-allowed=%s" (list .v.storage.url .v.storage.mirror | compact | join ",") | quote }}
        {{- end }}
        {{- end }}
        {{- include "holdfast.flags" .v.agent.settings | trim | nindent 8 }}
      env:
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: HOST_NAME
          valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      {{- include "holdfast.job.credentials" . | nindent 6 }}
      ports:
        - name: agent-metrics
          containerPort: {{ .v.agent.metricsPort }}
      startupProbe:
        httpGet: {path: /metrics, port: agent-metrics}
        periodSeconds: 1
        failureThreshold: 120
      livenessProbe:
        httpGet: {path: /metrics, port: agent-metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      securityContext: {{- include "holdfast.locked" . | nindent 8 }}
      {{- $memory := printf "%dGi" (add (int .v.snapshotGi) (int .v.agent.memoryGi)) }}
      resources:
        requests: {cpu: {{ .v.agent.cpu | quote }}, memory: {{ $memory }}}
        limits: {memory: {{ $memory }}}
      volumeMounts:
        - name: run
          mountPath: /hf
        - name: snapshots
          mountPath: /hf-shm
        - name: agent-tmp
          mountPath: /tmp
        {{- if include "holdfast.job.agentSecret" . }}
        - {name: tls, mountPath: /etc/holdfast/tls, readOnly: true}
        {{- end }}
        {{- if .c.tls.denyMap }}
        - {name: denied, mountPath: /etc/holdfast/denied, readOnly: true}
        {{- end }}
        {{- include "holdfast.job.checkpointMount" . | nindent 8 }}
  containers:
    - name: trainer
      image: {{ .v.image }}
      imagePullPolicy: {{ .v.imagePullPolicy }}
      command:
        - /holdfast/bin/holdfast
        - exec
        {{- if eq .restart "Never" }}
        - --job={{ .job }}
        {{- end }}
        - --grace-s={{ sub (int .v.terminationGracePeriodSeconds) 10 }}
        - --
        {{- range .v.command }}
        - {{ . | quote }}
        {{- end }}
      {{- with .v.workingDir }}
      workingDir: {{ . }}
      {{- end }}
      env:
        - name: HOLDFAST_NODE
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - name: HOLDFAST_CLUSTER
          value: {{ .c.cluster | quote }}
        - name: HOLDFAST_RUN_DIR
          value: /hf
        - name: HOME
          value: /tmp
        {{- with .v.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- include "holdfast.job.credentials" . | nindent 6 }}
      securityContext: {{- include "holdfast.job.trainerSecurity" . | nindent 8 }}
      {{- with .v.resources }}
      resources: {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: launcher
          mountPath: /holdfast
          readOnly: true
        - name: run
          mountPath: /hf
        - name: snapshots
          mountPath: /hf-shm
        - name: shm
          mountPath: /dev/shm
        - name: tmp
          mountPath: /tmp
        {{- include "holdfast.job.checkpointMount" . | nindent 8 }}
        {{- with .v.volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - {name: launcher, emptyDir: {}}
    - {name: run, emptyDir: {}}
    - {name: agent-tmp, emptyDir: {}}
    - {name: tmp, emptyDir: {}}
    - name: snapshots
      emptyDir: {medium: Memory, sizeLimit: {{ .v.snapshotGi }}Gi}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ .v.shmGi }}Gi}
    {{- include "holdfast.job.tlsVolume" . | nindent 4 }}
    {{- with .c.tls.denyMap }}
    - name: denied
      configMap: {name: {{ . }}, defaultMode: 0440}
    {{- end }}
    {{- with .v.storage.pvc.claimName }}
    - name: checkpoints
      persistentVolumeClaim: {claimName: {{ . }}}
    {{- end }}
    {{- with .v.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}

{{- /* Pods that are lost are replaced; a job that failed for good (41) is not begun again. */ -}}
{{- define "holdfast.job.indexed" -}}
{{- $count := add (int .v.nodes) (int .v.spareNodes) }}
completionMode: Indexed
completions: {{ $count }}
parallelism: {{ $count }}
backoffLimit: 1000000
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {containerName: trainer, operator: In, values: [41]}
{{- if .c.successPolicy }}
# One node that ended well knows that the job did: nodes that only waited are not waited for.
successPolicy:
  rules:
    - succeededCount: 1
{{- end }}
template: {{- include "holdfast.job.pod" (merge (dict "restart" "Never") .) | nindent 2 }}
{{- end -}}

{{- define "holdfast.job.submit" -}}
backoffLimit: 1000
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: {containerName: submit, operator: In, values: [1]}
template:
  metadata:
    labels: {{- include "holdfast.job.labels" (dict "component" "submit" "job" .job "c" .c) | nindent 6 }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    securityContext: {{- include "holdfast.job.podSecurity" . | nindent 6 }}
    {{- with .c.imagePullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: submit
        image: {{ .c.image }}
        imagePullPolicy: {{ .c.imagePullPolicy }}
        args:
          - submit
          - --wait
          - --coordinator={{ include "holdfast.job.coordinators" . }}
          {{- if not (include "holdfast.job.submitSecret" .) }}
          - --insecure
          {{- end }}
          - --rdzv-id={{ .job }}
          - --nnodes={{ default .v.nodes .v.nodesMin }}:{{ .v.nodes }}
          - --nproc-per-node={{ .v.ranksPerNode }}
          - --spares={{ .v.sparesPerNode }}
          - --cwd={{ default "." .v.workingDir }}
          {{- with .v.storage.url }}
          - --storage={{ . }}
          {{- end }}
          {{- with .v.storage.mirror }}
          - --mirror={{ . }}
          {{- end }}
          {{- range .v.flags }}
          - {{ . | quote }}
          {{- end }}
          {{- $command := .v.command }}
          {{- if not (hasPrefix "python" (base (first $command))) }}
          - --no-python
          {{- else if and (gt (len $command) 1) (eq (index $command 1) "-m") }}
          - --module
          {{- $command = slice $command 2 }}
          {{- else }}
          {{- $command = rest $command }}
          {{- end }}
          {{- range $command }}
          - {{ . | quote }}
          {{- end }}
        {{- if include "holdfast.job.submitSecret" . }}
        env: {{- include "holdfast.tls.env" "/etc/holdfast/tls" | nindent 10 }}
        volumeMounts:
          - {name: tls, mountPath: /etc/holdfast/tls, readOnly: true}
        {{- end }}
        securityContext: {{- include "holdfast.locked" . | nindent 10 }}
        resources:
          requests: {cpu: 50m, memory: 128Mi}
          limits: {memory: 512Mi}
    {{- with include "holdfast.job.submitSecret" . }}
    volumes:
      - name: tls
        secret:
          secretName: {{ . }}
          defaultMode: 0440
    {{- end }}
{{- end -}}

{{- define "holdfast.job.submitJob" -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .job }}-submit
  {{- include "holdfast.job.owner" (merge (dict "component" "submit") .) | nindent 2 }}
spec: {{- include "holdfast.job.submit" . | nindent 2 }}
  {{- include "holdfast.job.ttl" . | nindent 2 }}
{{- end -}}

{{- define "holdfast.job.policy" -}}
# Ranks and agents of a job meet on any port, a leader asks silent nodes directly; others read /metrics only.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .job }}
  labels: {{- include "holdfast.job.labels" (dict "component" "trainer" "job" .job "c" .c) | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "holdfast.job.selector" (dict "component" "trainer" "job" .job) | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - from:
        - podSelector:
            matchLabels: {{- include "holdfast.job.selector" (dict "component" "trainer" "job" .job) | nindent 14 }}
    {{- with include "holdfast.job.coordinatorNamespaces" . }}
    - from:
        {{- range splitList "," . }}
        - namespaceSelector:
            matchLabels: {kubernetes.io/metadata.name: {{ . | quote }}}
          podSelector:
            matchLabels: {app.kubernetes.io/name: holdfast, app.kubernetes.io/component: coordinator}
        {{- end }}
    {{- end }}
    - ports:
        - port: {{ .v.agent.metricsPort }}
{{- end -}}

{{- define "holdfast.job.objects" -}}
{{- $labels := include "holdfast.job.labels" (dict "component" "trainer" "job" .job "c" .c) }}
{{- $selector := include "holdfast.job.selector" (dict "component" "trainer" "job" .job) }}
{{- $owner := include "holdfast.job.owner" (merge (dict "component" "trainer") .) }}
{{- if or (hasKey .v.podSecurityContext "runAsUser") (hasKey .v.securityContext "runAsUser") }}
{{- fail (printf "jobs.%s: set runAsUser beside the security contexts, not in them: agent and ranks share a socket and memory, and are one user" .job) }}
{{- end }}
{{- if hasKey .v.securityContext "capabilities" }}
{{- fail (printf "jobs.%s: set capabilities beside securityContext, not in it: all others are dropped" .job) }}
{{- end }}
{{- if not .v.image }}
{{- fail (printf "jobs.%s.image is empty: name the image that your script is in" .job) }}
{{- end }}
{{- if not .v.command }}
{{- fail (printf "jobs.%s.command is empty: give one, as [python, train.py]" .job) }}
{{- end }}
{{- if and (hasPrefix "file://" .v.storage.url) (not .v.storage.pvc.claimName) }}
{{- fail (printf "jobs.%s.storage.url is %s and no claim is mounted there: set jobs.%s.storage.pvc.claimName" .job .v.storage.url .job) }}
{{- end }}
{{- if and (eq .c.tls.from "secrets") (not (and (or .v.tls.agentSecret .c.tls.agentSecret) (or .v.tls.submitSecret .c.tls.submitSecret))) }}
{{- fail (printf "tls.from is secrets: name them in tls.secrets.agent and tls.secrets.operator, or for this job in jobs.%s.tls.agentSecret and jobs.%s.tls.submitSecret" .job .job) }}
{{- end }}
{{- if and .v.storage.pvc.size (not .v.storage.pvc.claimName) }}
{{- fail (printf "jobs.%s.storage.pvc.size is set and claimName is not: name the claim to make" .job) }}
{{- end }}
{{ include "holdfast.job.policy" . }}
{{- if .v.storage.pvc.size }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .v.storage.pvc.claimName }}
  labels: {{- $labels | nindent 4 }}
spec:
  accessModes: [{{ ternary "ReadWriteMany" "ReadWriteOnce" (gt (add (int .v.nodes) (int .v.spareNodes)) 1) }}]
  {{- with .v.storage.pvc.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .v.storage.pvc.size }}
{{- end }}
{{- include "holdfast.job.certificates" . }}
---
{{- if eq .v.kind "Job" }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .job }}-nodes
  {{- $owner | nindent 2 }}
spec: {{- include "holdfast.job.indexed" . | nindent 2 }}
  {{- include "holdfast.job.suspend" . | nindent 2 }}
  {{- include "holdfast.job.ttl" . | nindent 2 }}
---
{{ include "holdfast.job.submitJob" . }}
{{- else if eq .v.kind "StatefulSet" }}
apiVersion: v1
kind: Service
metadata:
  name: {{ .job }}-nodes
  labels: {{- $labels | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- $selector | nindent 4 }}
  ports:
    - name: agent-metrics
      port: {{ .v.agent.metricsPort }}
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ .job }}-nodes
  {{- $owner | nindent 2 }}
spec:
  serviceName: {{ .job }}-nodes
  replicas: {{ add (int .v.nodes) (int .v.spareNodes) }}
  podManagementPolicy: Parallel
  updateStrategy: {type: OnDelete}
  selector:
    matchLabels: {{- $selector | nindent 6 }}
  template: {{- include "holdfast.job.pod" (merge (dict "restart" "Always") .) | nindent 4 }}
---
{{ include "holdfast.job.submitJob" . }}
{{- else }}
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: {{ .job }}
  {{- $owner | nindent 2 }}
spec:
  successPolicy: {operator: All, targetReplicatedJobs: [submit]}
  failurePolicy: {maxRestarts: 0}
  {{- include "holdfast.job.suspend" . | nindent 2 }}
  {{- include "holdfast.job.ttl" . | nindent 2 }}
  replicatedJobs:
    - name: nodes
      replicas: 1
      template:
        spec: {{- include "holdfast.job.indexed" . | nindent 10 }}
    - name: submit
      replicas: 1
      template:
        spec: {{- include "holdfast.job.submit" . | nindent 10 }}
{{- end }}
{{- end -}}
