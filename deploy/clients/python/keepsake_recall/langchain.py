"""A LangChain retriever over one user's memories."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from .client import Client


class KeepsakeRetriever(BaseRetriever):
    client: Client
    user: str
    session: str | None = None
    limit: int = 5
    min_relevance: float | None = None
    where: dict[str, Any] | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        reply = self.client.recall(
            self.user,
            query,
            session=self.session,
            limit=self.limit,
            min_relevance=self.min_relevance,
            where=self.where,
            format="none",
        )
        documents = []
        for memory in reply["memories"]:
            fields = ("kind", "score", "relevance", "created_at", "speaker", "session", "note")
            metadata: dict[str, Any] = {**memory.get("metadata", {})}
            metadata |= {name: value for name, value in memory.items() if name in fields}
            document = Document(
                id=memory["id"], page_content=memory["content"], metadata=metadata
            )
            documents.append(document)
        return documents
