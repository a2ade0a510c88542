"""The verbs of the API for every resource, without a socket.

Lives here: method and path -> verb, options and bodies -> registry, items -> answers. Not here: the rules of
writing (lab.apiserver.registry), HTTP (server.py), documents about the API itself
(lab.apiserver.documents.documents). Called by server.py; tests may call it without a server. Source:
k8s.io/apiserver pkg/endpoints/installer.go and pkg/endpoints/handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple
from weakref import WeakSet

from gangsched.api_rules.schema.catalog import builtin
from gangsched.lab.apiserver.http import bodies, responses
from gangsched.lab.apiserver.http.bodies import Expected
from gangsched.lab.apiserver.http.negotiation import Shape, negotiate
from gangsched.lab.apiserver.http.patches import patch, schema_of, shown, tracked
from gangsched.lab.apiserver.http.requests import (
    Request,
    Target,
    WriteOptions,
    check_name,
    delete_options,
    find_target,
    list_options,
    write_options,
)
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.http.shapes import Shapes
from gangsched.lab.apiserver.registry import Registry
from gangsched.lab.apiserver.schema.fields import taken_in
from gangsched.lab.apiserver.status import method_not_allowed, not_found, success
from gangsched.lab.apiserver.storage import codec
from gangsched.lab.apiserver.storage.lists import (
    ListOptions,
    Page,
    check_reached,
    page,
    parse_revision_of_one,
)
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.storage.watches import Watch
from gangsched.lab.apiserver.strategy import Context, Object, Strategy


class Watching(NamedTuple):
    """The answer to a watch request: `open(wake)` begins the watch; it lasts `timeout_s` at most."""

    open: Callable[[Callable[[], None]], Watch]
    timeout_s: int | None
    bookmarks: bool


class Handlers:
    """Answers requests for resources from one registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._shapes = Shapes(registry)
        self._watches: WeakSet[Watch] = WeakSet()
        registry.on_unserved(self._end_watches)

    def handle(self, request: Request) -> Answer | Watching | None:
        """Answers a request; None if no resource is served at the path. Raises: StatusError."""
        target = find_target(self._registry.resources, request.path)
        if target is None:
            return None
        method = request.method
        if target.subresource:
            return self._subresource(request, target, method)
        verbs = target.resource.verbs
        if target.name:
            match method:
                case "GET" if "get" in verbs:
                    return self._get(request, target)
                case "PUT" if "update" in verbs:
                    return self._update(request, target)
                case "PATCH" if "patch" in verbs:
                    return self._patch(request, target)
                case "DELETE" if "delete" in verbs:
                    return self._delete(request, target)
        elif method == "GET" and "list" in verbs:
            return self._list_or_watch(request, target)
        elif method == "POST" and "create" in verbs and _in_scope(target):
            return self._create(request, target)
        elif method == "DELETE" and "deletecollection" in verbs and _in_scope(target):
            return self._delete_collection(request, target)
        raise method_not_allowed()

    def _subresource(self, request: Request, target: Target, method: str) -> Answer:
        found = target.resource.subresource(target.subresource)
        verbs = found.verbs if found is not None else ()
        if found is not None and found.connects and method in ("GET", "POST"):
            strategy = self._registry.strategy(target.resource)
            return responses.document(strategy.connect(self._context(request, target)))
        match method:
            case "GET" if "get" in verbs:
                if target.subresource == "status":
                    return self._get(request, target)
                negotiate(request.accept)
                strategy = self._registry.strategy(target.resource)
                return responses.document(strategy.get_subresource(self._context(request, target)))
            case "PUT" if "update" in verbs:
                return self._update(request, target)
            case "PATCH" if "patch" in verbs:
                return self._patch(request, target)
            case "POST" if "create" in verbs:
                return self._create_subresource(request, target)
        raise method_not_allowed()

    def _context(self, request: Request, target: Target, options: WriteOptions | None = None) -> Context:
        manager = options.field_manager if options is not None else ""
        return Context(
            cluster=self._registry,
            resource=target.resource,
            version=target.version,
            namespace=target.namespace,
            name=target.name,
            now=self._registry.now(),
            subresource=target.subresource,
            dry_run=options is not None and options.dry_run,
            field_manager=manager or request.user_agent.partition("/")[0],
        )

    def _get(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        if target.resource.stored:
            revision = parse_revision_of_one(request.first("resourceVersion"))
            check_reached(self._registry.store, revision)
            item = self._registry.get(target.resource, target.namespace, target.name)
        else:
            item = self._computed_one(request, target)
        return self._one(item, target, wanted, request)

    def _list_or_watch(self, request: Request, target: Target) -> Answer | Watching:
        strategy = self._registry.strategy(target.resource)
        options = list_options(request, target, strategy)
        wanted = negotiate(request.accept).shape
        if options.watch and "watch" not in target.resource.verbs:
            raise method_not_allowed()
        if options.watch:
            return self._watch(request, target, options, wanted)
        if target.resource.stored:
            found = page(self._registry.store, target.resource.storage_key, target.namespace, options)
        else:
            computed = [item for item in self._computed(request, target) if options.selects(item)]
            found = Page(computed, self._registry.store.revision)
        return Answer(200, self._shapes.many(found, target, wanted, request))

    def _computed(self, request: Request, target: Target) -> Iterator[Item]:
        strategy = self._registry.strategy(target.resource)
        for obj in strategy.computed(self._context(request, target)):
            yield codec.as_item(target.resource, obj, 0, {})

    def _computed_one(self, request: Request, target: Target) -> Item:
        for item in self._computed(request, target):
            if item.name == target.name:
                return item
        raise not_found(target.resource.plural, target.name, group=target.resource.group)

    def _watch(
        self, request: Request, target: Target, options: ListOptions, wanted: Shape | None
    ) -> Watching:
        form = self._shapes.form(target, wanted, request)
        store, resource = self._registry.store, target.resource

        def begin(wake: Callable[[], None]) -> Watch:
            watch = Watch(store, resource, target.namespace, options, form, wake)
            self._watches.add(watch)
            return watch

        return Watching(begin, options.timeout_s, options.bookmarks)

    def _end_watches(self, key: str) -> None:
        """Ends the watches of a resource that is no longer served; clients then list again."""
        for watch in list(self._watches):
            if watch.key == key:
                watch.end()

    def _create(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        options = write_options(request, "CreateOptions")
        context = self._context(request, target, options)
        obj = self._body(request, target, options, context)
        strategy = self._registry.strategy(target.resource)
        if not target.resource.stored:
            reviewed = strategy.review(obj, context)
            return _warned(responses.document(reviewed, code=201), context)
        tracked(obj, None, schema_of(self._registry, target), target, context)
        obj = self._stored(obj, target, strategy)
        item = self._registry.create(target.resource, obj, namespace=target.namespace, context=context)
        return _warned(self._one(item, target, wanted, request, code=201), context)

    def _create_subresource(self, request: Request, target: Target) -> Answer:
        negotiate(request.accept)
        options = write_options(request, "CreateOptions")
        context = self._context(request, target, options)
        obj = self._body(request, target, options, context)
        # Each subresource has its own words for a name that differs from the path's.
        strategy = self._registry.strategy(target.resource)
        answer = strategy.create_subresource(obj, context)
        return _warned(responses.document(answer, code=201), context)

    def _update(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        options = write_options(request, "UpdateOptions")
        context = self._context(request, target, options)
        obj = self._body(request, target, options, context)
        check_name(obj, target)
        strategy = self._registry.strategy(target.resource)
        schema = schema_of(self._registry, target)

        def made(old: Object | None) -> Object:
            before = shown(old, strategy, target) if old is not None else None
            return self._stored(tracked(obj, before, schema, target, context), target, strategy)

        creates = strategy.creates_on_update and not target.subresource
        item, is_new = self._registry.update(
            target.resource,
            target.namespace,
            target.name,
            made,
            context=context,
            create=(lambda: made(None)) if creates else None,
        )
        return _warned(self._one(item, target, wanted, request, code=201 if is_new else 200), context)

    def _patch(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        options = write_options(request, "PatchOptions")
        context = self._context(request, target, options)
        item, is_new = patch(self._registry, request, target, options, context)
        return _warned(self._one(item, target, wanted, request, code=201 if is_new else 200), context)

    def _delete(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        options, dry_run = delete_options(request, self._delete_body(request))
        context = self._context(request, target, WriteOptions(dry_run=dry_run))
        existing = self._registry.get(target.resource, target.namespace, target.name)
        done = self._registry.deletions.delete(existing, options, context)
        strategy = self._registry.strategy(target.resource)
        if done.left is not None or strategy.returns_deleted:
            return _warned(self._one(done.item, target, wanted, request), context)
        resource = target.resource
        status = success(name=existing.name, group=resource.group, kind=resource.plural, uid=existing.uid)
        return _warned(responses.document(status), context)

    def _delete_collection(self, request: Request, target: Target) -> Answer:
        wanted = negotiate(request.accept).shape
        resource = target.resource
        selected = list_options(request, target, self._registry.strategy(resource))
        options, dry_run = delete_options(request, self._delete_body(request))
        found = page(self._registry.store, resource.storage_key, target.namespace, selected)
        deleted: list[Item] = []
        for item in found.items:
            context = self._context(request, target._replace(name=item.name), WriteOptions(dry_run=dry_run))
            context.namespace = item.namespace
            existing = self._registry.find(resource, item.namespace, item.name)
            if existing is not None:
                deleted.append(self._registry.deletions.delete(existing, options, context).item)
        result = found._replace(items=deleted, revision=self._registry.store.revision)
        return Answer(200, self._shapes.many(result, target, wanted, request))

    def _delete_body(self, request: Request) -> Object | None:
        if not request.body:
            return None
        # It may have any group's version: it is registered in all of them.
        expected = Expected("DeleteOptions", "")
        return bodies.decoded(request.body, request.content_type, expected)

    def _body(self, request: Request, target: Target, options: WriteOptions, context: Context) -> Object:
        """Returns the body, of the right kind and with only that kind's fields. Raises: StatusError."""
        resource = target.resource
        group, version, kind = resource.group, target.version, resource.kind
        schema = None
        below = resource.subresource(target.subresource) if target.subresource else None
        if below is not None and below.kind != kind:
            group, kind = group if below.group is None else below.group, below.kind
            version = below.version or version
            schema = builtin().builtin(group, version, kind)
        api_version = f"{group}/{version}" if group else version
        obj = bodies.decoded(request.body, request.content_type, Expected(kind, api_version, resource.custom))
        return taken_in(
            schema or schema_of(self._registry, target),
            obj,
            kind=kind,
            version=version,
            directive=options.field_validation,
            warn=context.warn,
            body=request.body,
        )

    def _stored(self, obj: Object, target: Target, strategy: Strategy) -> Object:
        if strategy.converts:
            return strategy.to_storage(obj, target.version, target.resource)
        return obj

    def _one(
        self, item: Item, target: Target, wanted: Shape | None, request: Request, *, code: int = 200
    ) -> Answer:
        return Answer(code, self._shapes.one(item, target, wanted, request))


def _in_scope(target: Target) -> bool:
    """Whether writes may use the path: for a namespaced resource it must name a namespace."""
    return bool(target.namespace) or not target.resource.namespaced


def _warned(answer: Answer, context: Context) -> Answer:
    """The response with its warnings added as Warning headers."""
    if context.warnings:
        answer.headers["Warning"] = "\n".join(
            '299 - "' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in context.warnings
        )
    return answer
